# SPDX-License-Identifier: GPL-2.0
# Kbuild has the build of the module. This is for people:
# make help
KDIR ?= /lib/modules/$(shell uname -r)/build

all: modules

modules clean:
	$(MAKE) -C $(KDIR) M=$(CURDIR) $@

# The guests' userland and kernels, fetched and built ahead of time
cache:
	scripts/deps
	scripts/cache rootfs
	scripts/cache rdma-core
	scripts/cache uml
	scripts/cache uml-debug
	scripts/cache qemu-6.12
	scripts/cache qemu-7.2

demo test bench bench-isolation tools soak matrix deb install-test removal:
	scripts/$@

bar:
	scripts/bar-test

# Without packages: make; make provider RDMA_CORE=...; make install. The user
# library is found by libibverbs wherever it is; what the module brings for
# modprobe, udev and systemd, by these in /usr and /usr/local.
prefix ?= /usr/local
sysconfdir ?= /etc

provider:
	@test -n "$(RDMA_CORE)" || { \
		echo 'make provider RDMA_CORE=FOLDER: where is the source of rdma-core?'; \
		exit 1; }
	provider/build $(RDMA_CORE) build/provider

install:
	@DESTDIR="$(DESTDIR)" prefix="$(prefix)" sysconfdir="$(sysconfdir)" \
		KDIR="$(KDIR)" scripts/install

uninstall:
	@DESTDIR="$(DESTDIR)" prefix="$(prefix)" scripts/install --uninstall

help:
	@echo 'make              build keel.ko for the running kernel (or KDIR=...)'
	@echo 'make clean        remove what that made'
	@echo 'make deb          build Debian packages, into dist/'
	@echo 'make provider RDMA_CORE=FOLDER   build the user library'
	@echo 'make install      install what was built; make uninstall removes it'
	@echo 'make demo         show keel at work in a throwaway guest'
	@echo 'make test         run all tests in throwaway guests'
	@echo 'make bench        compare keel with rxe: a table, numbers, a chart'
	@echo 'make bench-isolation  what a process costs others: a table with goals'
	@echo 'make tools        run the usual RDMA programs on keel, in a guest'
	@echo 'make matrix       build for every kernel, boot each, print a table'
	@echo 'make soak         everything at once, killed at random, for 10 minutes'
	@echo 'make bar          device memory behind a PCI BAR, in guests with one'
	@echo 'make removal      take the device away 200 times in each way, under fire'
	@echo 'make install-test install, upgrade and purge the packages in a guest'
	@echo 'make cache        fetch and build what the guests need'
	@echo 'scripts/guest -- COMMAND   run one command in a guest (see its head)'

.PHONY: all modules clean cache demo test bench bench-isolation tools soak bar matrix deb install-test \
	removal provider install uninstall help
