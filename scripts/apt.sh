# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Debian packages of several suites, with a private apt configuration. The apt
# configuration of the machine is only read, for its mirror and proxies.

APT_DIR=$KEEL_CACHE/apt

# mirror: print the Debian mirror of this machine. KEEL_MIRROR overrides it, and
# is required if apt has no Debian mirror (Ubuntu).
mirror() {
	local site release
	if [ -n "${KEEL_MIRROR:-}" ]; then
		printf '%s\n' "$KEEL_MIRROR"
		return
	fi
	# One site serves all suites of Debian. Its codenames distinguish it from
	# other repositories of the machine.
	# shellcheck disable=SC2016  # apt expands these names
	while read -r site release; do
		case $release in
		bookworm | trixie | forky | sid | stable | testing | unstable)
			printf '%s\n' "${site%/}"
			return
			;;
		esac
	done < <(apt-get indextargets --format '$(SITE) $(RELEASE)')
	say "apt on this machine has no Debian mirror"
	say "set KEEL_MIRROR to the address of a mirror (it ends in /debian)"
	return 1
}

# APT_ARCHITECTURES lists the architectures, if other ones than amd64 are needed.
keel_apt() {
	local tool=$1
	shift
	"$tool" -q \
		-o Dir::Etc::SourceList="$APT_DIR/sources.list" \
		-o Dir::Etc::SourceParts=/dev/null \
		-o Dir::Etc::Preferences=/dev/null \
		-o Dir::Etc::PreferencesParts=/dev/null \
		-o Dir::State="$APT_DIR/state" \
		-o Dir::State::status="$APT_DIR/state/status" \
		-o Dir::Cache="$APT_DIR/cache" \
		-o APT::Architecture=amd64 \
		-o APT::Architectures="${APT_ARCHITECTURES:-amd64}" \
		-o APT::Sandbox::User=root \
		-o Acquire::Languages=none \
		-o Acquire::Retries=3 "$@"
}

# apt_suites SUITE...: fetch the package lists of these suites. A suite that
# does not answer is skipped: the download of its packages fails later.
# "X-security" is on a separate path of the mirror.
apt_suites() {
	local site suite key address
	site=$(mirror) || exit 1
	key=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -f "$key" ] ||
		die "no $key" "run scripts/deps, which installs debian-archive-keyring"
	mkdir -p "$APT_DIR"/{state/lists/partial,cache/archives/partial}
	: >"$APT_DIR/state/status"
	: >"$APT_DIR/sources.list"
	for suite in "$@"; do
		address=$site
		case $suite in
		*-security) address=$site-security ;;
		esac
		for type in deb deb-src; do
			printf '%s [signed-by=%s] %s %s main\n' \
				"$type" "$key" "$address" "$suite"
		done
	done >>"$APT_DIR/sources.list"
	keel_apt apt-get update ||
		say "some package lists could not be fetched, continuing without"
}

# apt_newest PACKAGE DIR: download the newest available version into DIR. The
# loop is needed because a mirror may list a version whose file it no longer
# has.
apt_newest() {
	local version
	while read -r version; do
		(cd "$2" && keel_apt apt-get download "$1=$version") && return
		say "$1 $version cannot be downloaded, trying the next version"
	done < <(keel_apt apt-cache madison "$1" |
		awk -F ' *[|] *' -v p="$1" '
			{ gsub(/ /, "", $1) }
			($1 == p || $1 ":amd64" == p) && $3 ~ /Packages$/ { print $2 }' | sort -urV)
	say "no version of $1 can be downloaded"
	return 1
}

# newest_series LOG: print the newest series of trixie-backports with a bootable
# kernel. Without a network, print the newest series of the cache.
newest_series() {
	local log=$1 found
	found=$(
		lock "$KEEL_CACHE/apt.lock"
		apt_suites trixie-backports >"$log" 2>&1
		keel_apt apt-cache pkgnames linux- | sed -nE \
			's/^linux-(image|binary|binary-unsigned)-([0-9]+\.[0-9]+)\..*\+deb13-amd64$/\2/p' |
			sort -V | tail -n 1
	) || :
	if [ -z "$found" ]; then
		found=$(find "$KEEL_CACHE" -maxdepth 1 -name 'qemu-*.*' -type d \
			-printf '%f\n' | sed 's/^qemu-//' | sort -V | tail -n 1)
		say "trixie-backports does not answer ($log);" \
			"using ${found:-none} as the newest"
	fi
	[ -n "$found" ] || die "no kernel is known" "is there a network?"
	printf '%s\n' "$found"
}
