# SPDX-License-Identifier: GPL-2.0
# Kbuild builds the module. For a list of targets: make help
KDIR ?= /lib/modules/$(shell uname -r)/build

all: modules

modules clean:
	$(MAKE) -C $(KDIR) M=$(CURDIR) $@

# Fetch and build the userland and the kernels of the guests ahead of time
cache:
	scripts/deps
	scripts/cache rootfs
	scripts/cache rdma-core
	scripts/cache uml
	scripts/cache uml-debug
	scripts/cache qemu-6.12
	scripts/cache qemu-7.2
	scripts/cache consumers-root
	scripts/cache herd
	scripts/cache clang

demo test torture bench bench-across bench-isolation bench-objects tools consumers soak \
	matrix install-test removal upstream mutate:
	scripts/$@

deb:
	scripts/deb
	scripts/deb-run

across:
	scripts/across
	scripts/two-guests

bar:
	scripts/bar-test

# keel-run: any command with keel0 there, as any user
bundle run-test:
	scripts/$@

# Without packages: make; make provider RDMA_CORE=...; make install. libibverbs
# finds the user library with any prefix. modprobe, udev and systemd find their
# files only in /usr and /usr/local.
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
	@echo 'make clean        remove the output of make'
	@echo 'make deb          build Debian packages, keel-run too, into dist/'
	@echo 'make provider RDMA_CORE=FOLDER   build the user library'
	@echo 'make install      install the build; make uninstall removes it'
	@echo 'make demo         demonstrate keel in a throwaway guest'
	@echo 'make test         run all tests in throwaway guests'
	@echo 'make torture      run the tests that take long'
	@echo 'make bench        compare keel with rxe: a table, numbers, a chart'
	@echo 'make bench-across   compare traffic between two hosts with rxe alone'
	@echo 'make bench-isolation  measure the influence of processes on each other'
	@echo 'make bench-objects  measure what objects cost, with few and with many alive'
	@echo 'make tools        run the usual RDMA programs on keel, in a guest'
	@echo 'make consumers    run what Debian has for RDMA on keel and rxe, print a table'
	@echo 'make across       run RDMA programs between two hosts: in a guest, and in two'
	@echo 'make matrix       build for every kernel, boot each, print a table'
	@echo 'make soak         run a stress test with random kills for 10 minutes'
	@echo 'make bar          test device memory behind a PCI BAR, in guests'
	@echo 'make removal      remove the device 200 times in each way, while in use'
	@echo 'make mutate       plant small bugs, and find out which tests notice them'
	@echo 'make install-test install, upgrade and purge the packages in a guest'
	@echo 'make upstream     keel as a part of the kernel and rdma-core, built and booted'
	@echo 'make bundle       build keel-run, one archive for any machine, into dist/'
	@echo 'make run-test     test keel-run as an unprivileged user, in several roots'
	@echo 'make cache        fetch and build the parts of the guests'
	@echo 'scripts/guest -- COMMAND   run one command in a guest (see its head)'

.PHONY: all modules clean cache demo test torture bench bench-across bench-isolation \
	bench-objects tools consumers across soak bar matrix deb install-test removal upstream \
	mutate bundle run-test provider install uninstall help
