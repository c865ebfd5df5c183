#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fetch_data.sh [g2p|fashion|translate|kjv|all] [FOLDER]: gets what `paoding train` learns from out of Debian's
# packages and indexes, with apt but without root and without installing anything: docs/reference/data.md says what it is. FOLDER is
# PAODING_DATA_DIR, or data/ here, when not given. `paoding fetch` runs it. What is there already is not fetched again; a data set's folder is put
# in place whole, once everything in it is there.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
usage="usage: $0 [g2p|fashion|translate|kjv|all] [FOLDER]"
wanted=${1:-all}
folder=${2:-${PAODING_DATA_DIR:-$root/data}}
case $wanted in
  g2p | fashion | translate | kjv) sets=("$wanted") ;;
  all) sets=(g2p fashion translate kjv) ;;
  *) echo "$usage" >&2; exit 2 ;;
esac
(($# <= 2)) || { echo "$usage" >&2; exit 2; }
folder=$(realpath -m -- "$folder") # apt takes paths for relative to /

# A row per package: set|package|where it installs them|MiB for a while|the files, relative to it and to FOLDER/set.
packages=(
  "g2p|pocketsphinx-en-us|/usr/share/pocketsphinx/model/en-us|80|cmudict-en-us.dict"
  "fashion|dataset-fashion-mnist|/usr/share/datasets/fashion-mnist|120|train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz"
  "kjv|sword-text-kjv|/usr/share/sword|60|mods.d/engKJV2006eb.conf modules/texts/ztext/engKJV2006eb/ot.bzs modules/texts/ztext/engKJV2006eb/ot.bzv modules/texts/ztext/engKJV2006eb/ot.bzz modules/texts/ztext/engKJV2006eb/nt.bzs modules/texts/ztext/engKJV2006eb/nt.bzv modules/texts/ztext/engKJV2006eb/nt.bzz"
)
languages=(en it)

work=
apt_options=()
log=
child=
cleanup() {
  exec 2>/dev/null # where bash would say that the child was killed
  if [[ -n $child ]]; then
    kill -KILL -- "-$child" || true
    wait "$child" || true # so that it has ended when this script has
  fi
  [[ -z $work ]] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# A command that may take long, in a process group of its own: bash takes a signal while it waits like this, and else
# only when the command has ended.
run() { # run <command...>
  local status=0
  set -m
  "$@" </dev/null &
  child=$!
  set +m
  wait "$child" || status=$?
  child=
  return "$status"
}

die() { echo "fetch_data: $*" >&2; exit 1; }

# What a failed step left in $log, as a sentence that says what to do.
explain() {  # explain <what was tried>
  local text
  text=$(cat "$log" 2>/dev/null || true)
  if grep -qiE 'no space left|disk quota' <<<"$text" || [[ $(df --output=avail "$folder" | tail -n 1) -lt 1024 ]]; then
    die "$1: the disk of $folder is full; make room or name another FOLDER"
  elif grep -qiE 'could not resolve|temporary failure|could not connect|unable to connect|cannot initiate|timed out|network is unreachable|failed to fetch' <<<"$text"; then
    grep -iE '^(E|W|Err)' <<<"$text" | tail -n 2 >&2
    die "$1: no network, or Debian's mirror cannot be reached; see /etc/apt/ for the mirror and the proxy, then run this again"
  elif grep -qi 'unable to locate package' <<<"$text"; then
    die "$1: apt's sources do not have it; /etc/apt/sources.list* must name a Debian release with its component main"
  fi
  tail -n 3 <<<"$text" >&2
  die "$1 failed"
}

step() {  # step <what is tried> <command...>
  local what=$1
  shift
  run "$@" >"$log" 2>&1 || explain "$what"
}

# Bytes of the files named, below a folder; nothing when one is not there or is empty.
bytes_of() {  # bytes_of <folder> <files...>
  local in=$1 name total=0
  shift
  for name in "$@"; do
    [[ -s $in/$name ]] || return 0
    total=$((total + $(stat -c %s "$in/$name")))
  done
  echo "$total"
}

begin_work() {  # begin_work <MiB that are needed for a while>
  mkdir -p "$folder" 2>/dev/null && [[ -w $folder ]] || die "$folder: cannot write there; name another FOLDER"
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
    die "no apt here: fetch it on a Debian machine and copy FOLDER, docs/reference/data.md says which files are needed"
  # Before apt is asked: on a full disk its update does not come back.
  local free
  free=$(df --output=avail -BM "$folder" | tail -n 1 | tr -dc 0-9)
  ((free >= $1)) || die "the disk of $folder has $free MiB left, $1 are needed: make room or name another FOLDER"
  local left pid
  for left in "$folder"/.fetching.*; do # of runs that were killed
    pid=${left##*/.fetching.}
    [[ ! -d $left || -d /proc/${pid%%.*} ]] || rm -rf "$left"
  done
  work=$(mktemp -d "$folder/.fetching.$$.XXXXXX") || die "$folder: cannot write there; name another FOLDER"
  log=$work/log
  # apt's own hooks want root, or delete what others need: none of them is for private lists.
  printf '#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n' \
    >"$work/apt.conf"
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/set"
  apt_options=(-c "$work/apt.conf" -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=$(id -un)" -o Acquire::Retries=2)
}

# Puts $work/set where the data set belongs.
finish() {  # finish <set>
  sync -f "$work/set"
  rm -rf "${folder:?}/$1"
  mv -T "$work/set" "$folder/$1" || die "$folder/$1: cannot be put in place"
  rm -rf "$work"
  work=
}

report() {  # report <set> <bytes> <what> <where>
  printf "%s: %'d bytes, %s, in %s\n" "$1" "$2" "$3" "$4"
}

download() { run env -C "$work" apt-get "${apt_options[@]}" download -qq "$1"; }

fetch_package() {  # fetch_package <set> <package> <system folder> <MiB> <files...>
  local set=$1 package=$2 system=$3 megabytes=$4 bytes
  shift 4
  bytes=$(bytes_of "$folder/$set" "$@")
  if [[ -n $bytes ]]; then report "$set" "$bytes" "there already" "$folder/$set"; return; fi
  bytes=$(bytes_of "$system" "$@")
  if [[ -n $bytes ]]; then report "$set" "$bytes" "installed" "$system"; return; fi

  begin_work "$megabytes"
  if ! download "$package" >"$log" 2>&1; then
    # The machine's lists may be missing or old: lists of our own.
    apt_options+=(-o "Dir::State::Lists=$work/lists" -o Acquire::Languages=none)
    run apt-get "${apt_options[@]}" update -q >"$log" 2>&1 || true  # another source may fail: what counts is the package
    cp "$log" "$work/update_log"
    if ! download "$package" >"$log" 2>&1; then
      cat "$work/update_log" >>"$log"
      explain "downloading $package"
    fi
  fi
  local archives=("$work/${package}"_*.deb)
  local names=("./usr/share/doc/$package/copyright") name
  for name in "$@"; do names+=(".$system/$name"); done
  step "unpacking $package" bash -c 'set -o pipefail; dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" "${@:3}"' unpack \
    "${archives[0]}" "$work" "${names[@]}"
  step "unpacking $package" cp -a "$work$system/." "$work/set/"
  step "unpacking $package" cp "$work/usr/share/doc/$package/copyright" "$work/set/copyright"
  bytes=$(bytes_of "$work/set" "$@")
  [[ -n $bytes ]] || die "$package has no $* in $system any more"
  finish "$set"
  report "$set" "$bytes" "from Debian's $(basename "${archives[0]}")" "$folder/$set"
}

fetch_translate() {
  local language files=() bytes
  for language in "${languages[@]}"; do files+=("Translation-$language"); done
  bytes=$(bytes_of "$folder/translate" "${files[@]}")
  if [[ -n $bytes ]]; then report translate "$bytes" "there already" "$folder/translate"; return; fi

  begin_work 150
  apt_options+=(-o "Dir::State::Lists=$work/lists" -o "Acquire::Languages=$(IFS=,; echo "${languages[*]}")"
    -o Acquire::GzipIndexes=false)
  run apt-get "${apt_options[@]}" -o Acquire::IndexTargets::deb::Packages::DefaultEnabled=false update -q >"$log" 2>&1 || true
  # Of the releases that have all languages in main, the one that says most: updates and security have little.
  local best
  best=$(apt-get "${apt_options[@]}" indextargets --format '$(SITE) $(RELEASE)|$(LANGUAGE)|$(FILENAME)' \
      'Created-By: Translations' 'Component: main' 2>>"$log" |
    while IFS='|' read -r release language file; do echo "$release|$language|$(stat -c %s "$file")|$file"; done |
    awk -F '|' -v want="${#languages[@]}" '
      { count[$1]++; size[$1] += $3; files[$1] = files[$1] $2 "|" $4 "\n" }
      END { for (r in count) if (count[r] == want && size[r] > most) { most = size[r]; best = r }
            if (best != "") printf "%s\n%s", best, files[best] }')
  if [[ -z $best ]]; then
    grep -qE '^(E|W|Err):?' "$log" || echo 'unable to locate package' >>"$log"  # apt is content, but there are none
    explain "downloading the indexes ${files[*]}"
  fi
  local release=${best%%$'\n'*} file
  while IFS='|' read -r language file; do
    step "unpacking Translation-$language" bash -c '/usr/lib/apt/apt-helper cat-file "$1" >"$2"' unpack "$file" \
      "$work/set/Translation-$language"
  done < <(tail -n +2 <<<"$best")
  bytes=$(bytes_of "$work/set" "${files[@]}")
  [[ -n $bytes ]] || explain "unpacking the indexes"
  finish translate
  report translate "$bytes" "${files[*]} of $release" "$folder/translate"
}

for set in "${sets[@]}"; do
  if [[ $set == translate ]]; then fetch_translate; continue; fi
  for row in "${packages[@]}"; do
    IFS="|" read -r name package system megabytes files <<<"$row"
    # shellcheck disable=SC2086  # file names without blanks
    [[ $name != "$set" ]] || fetch_package "$set" "$package" "$system" "$megabytes" $files
  done
done
