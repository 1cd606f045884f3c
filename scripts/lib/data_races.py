# SPDX-License-Identifier: GPL-2.0
"""data_races.py LOG PATTERNS N: judge the log of a kernel with KCSAN.

Prints TAP with numbers from N + 1 on: a case for each data race of which one of the two
accesses is in a function of keel or not more than two calls below, and one for other
reports of the kernel, which PATTERNS (regular expressions) recognize. Races in the rest
of the kernel are counted only, and so are those of KNOWN.
Exit status 1 if there was a report of keel or another one.
"""
import collections
import re
import sys

READY = 'keel-guest: ready'
TITLE = 'BUG: KCSAN: '
# Functions of the kernel that keel calls for an access: lists, copies, bits.
DEPTH = 3
# Races of the kernel with itself, in functions that keel calls, by the functions of both
# accesses. Neither is to memory of keel.
KNOWN = (
    # current->flags: the scheduler reads PF_KTHREAD while the task sets PF_SUPERPRIV
    'data-race in capable / kthread_is_per_cpu',
    # the timer on the stack of a thread that sleeps, which looks whether it has expired
    'data-race in hrtimer_wakeup / schedule_hrtimeout_range_clock',
)
TIME = re.compile(r'^\[ *\d+\.\d+\](\[ *[TC]\d+\])? ?')
FRAME = re.compile(r'^\s+(\S+)\+0x[0-9a-f]+/0x[0-9a-f]+( \[(\w+)\])?')


def races_of(lines):
    """Return the reports of KCSAN, each a list of lines."""
    races, race = [], None
    for line in lines:
        if TITLE in line:
            race = [line]
            races.append(race)
        elif line.startswith('===='):
            race = None
        elif race is not None:
            race.append(line)
    return races


def is_of_keel(race):
    """Return whether keel, or what it called, made one of the two accesses."""
    if race[0].split(TITLE)[1] in KNOWN:
        return False
    depth = 0
    for line in race:
        match = FRAME.match(line)
        depth = depth + 1 if match else 0
        if match and depth <= DEPTH and match[3] == 'keel':
            return True
    return False


def main():
    """Print the cases."""
    log, patterns, first = sys.argv[1:]
    with open(log, encoding='utf-8', errors='replace') as file:
        lines = [TIME.sub('', line.rstrip()) for line in file]
    while lines and READY not in lines.pop(0):
        pass
    with open(patterns, encoding='utf-8') as file:
        known = [re.compile(line.rstrip('\n')) for line in file
                 if not line.startswith('#')]
    races = races_of(lines)
    mine = collections.defaultdict(list)
    for race in races:
        if is_of_keel(race):
            mine[race[0]].append(race)
    # Also within a report: another processor may print meanwhile.
    others = [line for line in lines
              if TITLE not in line and any(p.search(line) for p in known)]
    number = int(first)
    for title, found in mine.items():
        number += 1
        print(f'not ok {number} - {title.split(TITLE)[1]}'
              f'  # {len(found)} times')
        print(*('# ' + line for line in found[0]), sep='\n')
    number += 1
    print(('not ' if mine else '') + f'ok {number} - no data race of keel'
          f'  # {len(races) - sum(map(len, mine.values()))} of the rest of the kernel')
    number += 1
    print(('not ' if others else '') + f'ok {number} - no other report of'
          f' the kernel  # {others[0] if others else "none"}')
    print(f'1..{number}')
    return 1 if mine or others else 0


sys.exit(main())
