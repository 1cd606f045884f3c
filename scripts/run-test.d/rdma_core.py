# SPDX-License-Identifier: GPL-2.0
"""rdma-core's own tests in keel-run, as an ordinary user.

INPUTS/pyverbs is what scripts/pyverbs needs in a guest, and pyverbs.tap there is
what it printed in its own guest.
"""
import re
import shutil

from common import INPUTS, SHORT, WORK, case, in_root, keel_run_in


def results(tap):
    """{title: result} of each case: ok, not ok or skip."""
    return {title: 'skip' if '# SKIP' in rest else word for word, title, rest in
            re.findall(r'^(ok|not ok) \d+ - (.*?)( *#.*)?$', tap, re.M)}


if not SHORT:
    @case("rdma-core's own tests have the results that they have in scripts/pyverbs")
    def _():
        shutil.copytree(INPUTS + '/pyverbs', WORK + '/pyverbs')
        status, out, error = in_root(
            'debian13', keel_run_in('debian13'), '--timeout', '1500',
            '--param', 'dm_access_align=4', '--with', 'rxe', '--',
            '/job/pyverbs/pyverbs-run', '--ready', '/job/pyverbs/pyverbs.cases',
            timeout=1600)
        with open(INPUTS + '/pyverbs/pyverbs.tap', encoding='utf-8') as file:
            wanted = results(file.read())
        got = results(out)
        differ = [f'{title}: {got.get(title)}, not {wanted.get(title)}'
                  for title in sorted({*wanted, *got})
                  if got.get(title) != wanted.get(title)]
        if status or differ or len(wanted) < 200:
            bad = [line for line in out.split('\n') if line.startswith('not ok')]
            raise AssertionError('\n'.join([f'status {status}, {len(wanted)} cases in '
                                            'scripts/pyverbs', *differ[:12], *bad[:12],
                                            error[-500:]]))
        words = list(got.values())
        return f'{words.count("ok")} ok, {words.count("skip")} skipped, ' \
            f'{words.count("not ok")} not ok in both'
