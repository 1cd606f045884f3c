# SPDX-License-Identifier: GPL-2.0
"""The files of the Debian package, unpacked at INPUTS/package."""
import os

from common import INPUTS, SHORT, case, run, same

if not SHORT:
    @case('keel-run of the Debian package finds its files in /usr/lib')
    def _():
        package = INPUTS + '/package'
        assert not os.path.exists(package + '/usr/bin/lib')
        same(run('sh', '-c', 'cat /sys/class/infiniband/keel0/ports/1/state; '
                 'ibv_devinfo | grep -c PORT_ACTIVE',
                 program=package + '/usr/bin/keel-run'), (0, b'4: ACTIVE\n1\n', b''))
