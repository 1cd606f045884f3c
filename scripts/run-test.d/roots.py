# SPDX-License-Identifier: GPL-2.0
"""RDMA tools, a compiled program and "make check" in several roots."""
import os
import shutil
import time

from common import INPUTS, ROOTS, SHORT, WORK, case, in_root, keel_run_in

PROGRAM = r'''
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = list && *list ? ibv_open_device(*list) : NULL;
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	static char mem[4096];
	struct ibv_mr *mr = pd ? ibv_reg_mr(pd, mem, 4096, 7) : NULL;

	printf("%s %s\n", ctx ? ibv_get_device_name(*list) : "none",
	       mr ? "registered" : "not registered");
	return !mr;
}
'''


def pingpong(kind, wanted='100 iters'):
    tool = f'ibv_{kind}_pingpong'
    return tool, f'{tool} -d keel0 -g 1 -n 100 >/dev/null & sleep 0.5; ' \
        f'{tool} -d keel0 -g 1 -n 100 localhost && wait', wanted


COMPILED = 'a compiled program'
COMPILE = 'gcc -o prog prog.c -libverbs'
TOOLS = [
    ('ibv_devinfo', 'ibv_devinfo', 'PORT_ACTIVE'),
    *map(pingpong, ('rc', 'uc', 'ud', 'srq')),
    pingpong('xsrq', 'success'),
    ('rping', 'rping -s -C 3 -a 198.18.0.1 >/dev/null 2>&1 & sleep 0.5; '
     'rping -c -C 3 -v -a 198.18.0.1 2>/dev/null', 'rdma-ping-2'),
    ('ib_send_bw', 'ib_send_bw -F -d keel0 -n 100 >/dev/null & sleep 0.5; '
     'ib_send_bw -F -d keel0 -n 100 localhost && wait', 'BW average'),
    # Where there is no compiler, the program of another root is run.
    (COMPILED, 'if type gcc >/dev/null 2>&1 && '
     f'test -e /usr/include/infiniband/verbs.h; then {COMPILE} || exit; fi; ./prog',
     'keel0 registered'),
]
# Cases of one root only
SPECIAL = []
# {(title, root): seconds, as text}
TIMES = {}


def timed(title, name, wanted, *words):
    """Run words in a root. The output must have WANTED in it."""
    start = time.monotonic()
    TIMES[title, name] = 'failed'
    status, out, error = in_root(name, *words)
    if status or wanted not in out:
        raise AssertionError(f'status {status}: {out} {error}')
    TIMES[title, name] = f'{time.monotonic() - start:.1f}'
    return TIMES[title, name] + ' s'


def tool_case(name, title, script, wanted):
    @case(f'{title} in {name}')
    def _():
        if title == COMPILED and not os.path.exists(WORK + '/prog'):
            in_root('debian13', 'sh', '-c', COMPILE)
        return timed(title, name, wanted, keel_run_in(name), '--timeout', '60',
                     '--', 'sh', '-c', script)


def special_case(name, title, script, wanted):
    """A case whose script calls keel-run itself, as $0."""
    SPECIAL.append(title)

    @case(f'{title} in {name}')
    def _():
        return timed(title, name, wanted, 'sh', '-c', script, keel_run_in(name))


for root in ROOTS:
    for row in TOOLS:
        tool_case(root, *row)
for root in ('debian13',) if SHORT else ('debian13', 'debian12'):
    special_case(root, 'make check of examples/ci/verbs-check',
                 'cd verbs-check && make clean && make check KEEL_RUN="$0"',
                 'keel0: 2048 bytes sent and received')
if not SHORT:
    special_case('musl', 'a program compiled by musl-gcc',
                 '"$0" -- ./uverbs-musl', 'uverbs0: protection domain')
    # It says so because of its own library, and keel-run warns of it.
    special_case('musl', 'a libibverbs of musl is not replaced',
                 '"$0" -- ./verbs-musl 2>&1', 'keel-run: ./verbs-musl is linked with '
                 "musl: keel's provider is for glibc, compile the program in a root "
                 'with glibc\nlibibverbs of musl\n')


def prepare():
    """Put the sources of the programs into the directory of the runs."""
    with open(WORK + '/prog.c', 'w', encoding='ascii') as file:
        file.write(PROGRAM)
    shutil.copytree(INPUTS + '/verbs-check', WORK + '/verbs-check')
    # make writes into it.
    shutil.chown(WORK + '/verbs-check', 65534, 65534)
    if not SHORT:
        for name in ('uverbs-musl', 'verbs-musl'):
            shutil.copy(f'{INPUTS}/{name}', WORK)


def table():
    """Lines of the table of tools and roots, with the seconds of each."""
    titles = [row[0] for row in TOOLS] + list(dict.fromkeys(SPECIAL))
    width = max(map(len, titles))
    lines = [' ' * width + ''.join(f'{name:>10}' for name in ROOTS)]
    for title in titles:
        lines.append(f'{title:{width}}' + ''.join(
            f'{TIMES.get((title, name), "-"):>10}' for name in ROOTS))
    return lines
