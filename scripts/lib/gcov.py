# SPDX-License-Identifier: GPL-2.0
"""Read the counts of gcov that scripts/guest writes with KEEL_COVERAGE.

There is a folder for each guest, with gcov's counts (*.gcda) under the path of the
object file. A line was reached if any guest reached it. The builds of the lanes may
have different branches on a line: then that build counts of which the most were
reached.
"""
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

MARK = '/src/'


def gcov(gcda, notes, folder):
    """Return what gcov prints for an object file."""
    for file in folder.iterdir():
        file.unlink()
    shutil.copy(notes, folder / 'object.gcno')
    shutil.copy(gcda, folder / 'object.gcda')
    out = subprocess.run(
        ['gcov', '--json-format', '--stdout', '--branch-probabilities',
         'object.gcda'], cwd=folder, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out)


def source_of(path, cwd):
    """Return the path in the checkout, or None for a file of the kernel."""
    path = os.path.normpath(os.path.join(cwd, path))
    if MARK not in path or not path.startswith(os.environ['KEEL_CACHE']):
        return None
    path = path.split(MARK, 1)[1]
    return path if path.startswith(('drivers/', 'include/')) else None


class Counts:
    """Counts of lines, and of branches by build, of all guests."""

    def __init__(self):
        self.lines = collections.defaultdict(collections.Counter)
        self.branches = collections.defaultdict(
            lambda: collections.defaultdict(collections.Counter))

    def add(self, report, build):
        """Add what gcov printed for an object file of a build."""
        for file in report['files']:
            path = source_of(file['file'], report['current_working_directory'])
            if not path:
                continue
            for line in file['lines']:
                number = line['line_number']
                self.lines[path][number] += line['count']
                for i, branch in enumerate(line.get('branches', [])):
                    self.branches[path, number][build][i] += branch['count']

    def read(self, counts):
        """Read the counts of all guests."""
        found = [self.read_guest(guest) for guest in sorted(counts.iterdir())]
        if not any(found):
            sys.exit(f'coverage: {counts} has no counts')

    def read_guest(self, guest):
        """Read the counts of a guest, and return how many files had some."""
        found = sorted(guest.rglob('*.gcda'))
        with tempfile.TemporaryDirectory() as folder:
            for file in found:
                path = '/' + str(file.relative_to(guest))
                notes = pathlib.Path(path).with_suffix('.gcno')
                self.add(gcov(file, notes, pathlib.Path(folder)),
                         path.split(MARK, 1)[0])
        return len(found)

    def of_lines(self, path):
        """Return the numbers of lines that were reached, and of all."""
        counts = self.lines[path].values()
        return sum(1 for count in counts if count), len(counts)

    def of_branches(self, path):
        """The same for branches."""
        reached = total = 0
        for number in self.lines[path]:
            builds = self.branches.get((path, number), {}).values()
            best = max(((sum(1 for count in build.values() if count), len(build))
                        for build in builds), default=(0, 0),
                       key=lambda both: both[0] / both[1])
            reached += best[0]
            total += best[1]
        return reached, total
