#!/bin/bash
# Puts files into a volume whole: who reads there sees a file as it was or as it is to be, never half of it.
#
#   publish.sh FROM VOLUME
#
# FROM/list has a line for each file, `<mode> <owner or -> <name>`; the text is in FROM/files/<name>. A file
# that the list no longer names stays: what runs and is not changed yet may be started again. What only its owner
# may read is removed from FROM once it was put, or could not be: the container outlives its work.
# Where there is a FROM/first.sh, it is read before that, and may end all of it.
# Where there is a FROM/then.sh, it is read after that: it goes on from here, with the functions below. Files
# that it puts there have the mode `later` in the list.
#
# FROM/done appears once all of it is done; that is what the health check asks for. Of tools it needs cat,
# chmod, cp, ls, mkdir, mv, rm and sleep alone; for a file that not root owns, chown; for Envoy's binary, sha256sum.
set -euo pipefail

from=$1
volume=$2
generations=$volume/.generations
# Files are a few KiB. Each of these is an `up` that published and did not end its roll: nobody gets here.
generations_kept=1000

say() { printf '%s\n' "$*"; }

fail() {
  say "FAILED: $*" >&2
  exit 1
}

# put TEXT-FILE MODE OWNER NAME: the file VOLUME/NAME holds that text from one moment to the next.
put() {
  local staged=$volume/.new.$4
  rm -f "$staged" && (umask 077 && cp "$1" "$staged") && chmod "$2" "$staged" || return 1
  if [[ -n $(type -P sync) ]]; then sync "$staged" || return 1; fi
  # Root without its capabilities can give a file away, but neither change nor open it then: so this comes last.
  if [[ $3 != - ]]; then chown "$3:$3" "$staged" || return 1; fi
  mv -fT "$staged" "$volume/$4"
}

# remember NAMES: the files of this generation stay, and so do those of the last few before it.
remember() {
  local lines=() line name dropped kept
  if [[ -e $generations ]]; then
    while read -r line; do
      if [[ $line != "$1" ]]; then lines+=("$line"); fi
    done <"$generations"
  fi
  lines+=("$1")
  dropped=$((${#lines[@]} > generations_kept ? ${#lines[@]} - generations_kept : 0))
  kept=" ${lines[*]:dropped} "
  for name in ${lines[*]:0:dropped}; do
    if [[ $kept != *" $name "* ]]; then rm -f "$volume/$name"; fi
  done
  printf '%s\n' "${lines[@]:dropped}" >"$generations.new"
  mv -fT "$generations.new" "$generations"
}

forget_private() {
  local mode owner name
  while read -r mode owner name; do
    if [[ $mode == *00 && -n $name ]]; then rm -f "$from/files/$name"; fi
  done <"$from/list"
}
trap forget_private EXIT

if [[ -e $from/first.sh ]]; then
  # shellcheck source=/dev/null
  . "$from/first.sh"
fi

names=() put_now=()
while read -r mode owner name; do
  if [[ -z $name ]]; then continue; fi
  if [[ $mode != later ]]; then
    put "$from/files/$name" "$mode" "$owner" "$name"
    put_now+=("$name")
  fi
  names+=("$name")
done <"$from/list"
if ((${#names[@]})); then
  remember "${names[*]}"
  say "published ${put_now[*]}"
fi

if [[ -e $from/then.sh ]]; then
  # shellcheck source=/dev/null
  . "$from/then.sh"
fi

forget_private
: >"$from/done"
# The health check leaves FROM/seen once it found that. Who waits for the container looks once a second and
# must meet it healthy, which one that has ended is not. An engine at work may be slow to answer, and nobody waits
# for the end of this.
for ((waited = 0; waited < 300; waited++)); do
  if [[ -e $from/seen ]]; then
    sleep 30
    break
  fi
  sleep 0.2
done
