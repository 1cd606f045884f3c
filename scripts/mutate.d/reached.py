# SPDX-License-Identifier: GPL-2.0
"""reached.py FOLDER FILE JOBS: write the lines that each test program reached to FILE.

FOLDER is what scripts/inside/reach-run wrote. See scripts/mutate.d/reach.
"""
import json
import multiprocessing
import os
import pathlib
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
# pylint: disable=wrong-import-position
from gcov import Counts


def program(folder):
    """Return the seconds that a program took and the lines that it reached."""
    try:
        seconds = int((folder / 'seconds').read_text(encoding='utf-8'))
    except FileNotFoundError:
        return None
    counts = Counts()
    if not counts.read_guest(folder / 'counts'):
        return None
    return {'seconds': seconds,
            'lines': {path: sorted(number for number, count in lines.items() if count)
                      for path, lines in counts.lines.items()},
            'code': {path: sorted(lines) for path, lines in counts.lines.items()}}


def main():
    """Read the counts of all programs, and write the file."""
    base, out, jobs = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    folders = sorted(path.parent for path in base.glob('*/*/tap'))
    with multiprocessing.Pool(jobs) as pool:
        found = pool.map(program, folders, chunksize=1)
    programs, code = {}, {}
    for folder, entry in zip(folders, found):
        name = str(folder.relative_to(base))
        if entry is None:
            print(f'reach: {name} failed, or has no counts', file=sys.stderr)
            continue
        code.update(entry.pop('code'))
        programs[name] = entry
    if not programs:
        sys.exit('reach: no program has counts')
    with open(out + '.new', 'w', encoding='utf-8') as file:
        json.dump({'programs': programs, 'code': code}, file)
    os.replace(out + '.new', out)


main()
