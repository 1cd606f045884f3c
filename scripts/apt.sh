# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Debian packages of several suites, by an apt configuration of our own: the
# machine's is read for its mirror and proxies and never changed.

APT_DIR=$KEEL_CACHE/apt

# mirror: where this machine gets Debian from. KEEL_MIRROR overrides it and is
# needed where apt does not know Debian (Ubuntu).
mirror() {
	local site release
	if [ -n "${KEEL_MIRROR:-}" ]; then
		printf '%s\n' "$KEEL_MIRROR"
		return
	fi
	# One site serves all suites of Debian proper; its codenames tell it from
	# the other repositories a machine may have.
	# shellcheck disable=SC2016  # apt expands these names
	while read -r site release; do
		case $release in
		bookworm | trixie | forky | sid | stable | testing | unstable)
			printf '%s\n' "${site%/}"
			return
			;;
		esac
	done < <(apt-get indextargets --format '$(SITE) $(RELEASE)')
	say "apt on this machine knows no Debian mirror"
	say "set KEEL_MIRROR to the address of one (it ends in /debian)"
	return 1
}

# APT_ARCHITECTURES names others than amd64 where packages of them are asked for.
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

# apt_suites SUITE...: fetch the package lists of these. One that does not
# answer is left out: what needs it fails later, by name. "X-security" is found
# where Debian keeps it, next to the main archive.
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
		say "some package lists did not answer, going on with the others"
}

# apt_newest PACKAGE DIR: download the newest version that can be had into DIR.
# A mirror may list a version whose file is already gone, hence the loop.
apt_newest() {
	local version
	while read -r version; do
		(cd "$2" && keel_apt apt-get download "$1=$version") && return
		say "$1 $version does not download, trying the next"
	done < <(keel_apt apt-cache madison "$1" |
		awk -F ' *[|] *' -v p="$1" '
			{ gsub(/ /, "", $1) }
			($1 == p || $1 ":amd64" == p) && $3 ~ /Packages$/ { print $2 }' | sort -urV)
	say "no suite has a $1 that downloads"
	return 1
}
