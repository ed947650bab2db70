# shellcheck shell=bash
# Goes on after publish.sh, with the functions of server_status.sh: puts the lists of models under servers that read
# them again every few seconds, and is done once each server that runs has loaded what its list asks for.
#
# FROM/then/settings has lines: `wait <seconds>`, and for each list `file <name on the volume>`, `by-version` where
# other versions are another list, `instance <name> <host/port>` for each server that is to read it.
# FROM/files has the list under that name. Comments in it say the same in a form that bash can read:
#   #: model <model> <base path>
#   #: versions <model> latest <n> | all | specific <version>...
#   #: label <model> <label>=<version>
#
# A label moves in steps, as a server refuses one for a version that it has not loaded: the new versions beside
# the old ones, then the labels, then the old versions go. When a step fails, the list that was there before is
# put back: a server that starts again must come up.
#
# Beside the list stands VOLUME/<file>.serving, the models that a health check may ask for: those that servers
# have, also while others come and go. It has all of them once a change is done: where it lacks one, the run that
# put the list there was cut off, and the next one waits for what it left.

instances=()
patience=60
poll_s=5 # as often servers look at their list (MODELS_POLL_S)
by_version=
reason=
declare -A address=() spec=() state=() why=() earlier=()

# read_list WHICH FILE: spec[WHICH] are the models, spec[WHICH:<model>:<path, versions or labels>] what is said.
read_list() {
  local mark kind model rest
  spec[$1]=
  while read -r mark kind model rest; do
    if [[ $mark != '#:' ]]; then continue; fi
    case $kind in
      model) spec[$1]+=" $model" spec[$1:$model:path]=$rest spec[$1:$model:labels]= ;;
      versions) spec[$1:$model:versions]=$rest ;;
      label) spec[$1:$model:labels]+=" $rest" ;;
    esac
  done <"$2"
}

# has WHICH MODEL
has() { [[ " ${spec[$1]} " == *" $2 "* ]]; }

# add WHICH MODEL PATH VERSIONS LABELS
add() {
  spec[$1]+=" $2" spec[$1:$2:path]=$3 spec[$1:$2:versions]=$4 spec[$1:$2:labels]=$5
}

# write_list WHICH: puts the list on the volume.
write_list() {
  local model path versions label version text=$from/$1.config
  {
    for model in ${spec[$1]}; do
      printf '#: model %s %s\n#: versions %s %s\n' \
        "$model" "${spec[$1:$model:path]}" "$model" "${spec[$1:$model:versions]}"
      for label in ${spec[$1:$model:labels]}; do printf '#: label %s %s\n' "$model" "$label"; done
    done
    printf 'model_config_list {\n'
    for model in ${spec[$1]}; do
      path=${spec[$1:$model:path]//\\/\\\\}
      printf '  config {\n    name: "%s"\n    base_path: "%s"\n    model_platform: "tensorflow"\n' \
        "$model" "${path//\"/\\\"}"
      read -ra versions <<<"${spec[$1:$model:versions]}"
      case ${versions[0]} in
        latest) printf '    model_version_policy { latest { num_versions: %s } }\n' "${versions[1]}" ;;
        all) printf '    model_version_policy { all {} }\n' ;;
        specific)
          printf '    model_version_policy { specific {'
          for version in "${versions[@]:1}"; do printf ' versions: %s' "$version"; done
          printf ' } }\n'
          ;;
      esac
      for label in ${spec[$1:$model:labels]}; do
        printf '    version_labels { key: "%s" value: %s }\n' "${label%=*}" "${label#*=}"
      done
      printf '  }\n'
    done
    printf '}\n'
  } >"$text" && put "$text" 0644 - "$file"
}

# write_serving MODEL...: what health checks may ask for.
write_serving() {
  { printf '%s\n' "$@" >"$from/serving"; } && put "$from/serving" 0644 - "$file.serving"
}

reach() { { exec 3<>"/dev/tcp/${address[$1]}"; } 2>/dev/null; }

# ask_states INSTANCE MODEL: see `get_states`.
ask_states() { get_states "${address[$1]%/*}" "${address[$1]#*/}" "$2"; }

# versions_in FOLDER: the numbers of its version folders, the highest first, in `found`.
versions_in() {
  local entry number i
  found=()
  for entry in "$1"/*/; do
    entry=${entry%/} entry=${entry##*/}
    if [[ $entry =~ ^[0-9]+$ ]]; then
      number=$((10#$entry))
      for ((i = ${#found[@]}; i > 0 && found[i - 1] < number; i--)); do found[i]=${found[i - 1]}; done
      found[i]=$number
    fi
  done
}

# versions_of WHICH MODEL: the versions that its policy comes to, in `needed`.
versions_of() {
  local policy
  read -ra policy <<<"${spec[$1:$2:versions]}"
  needed=("${policy[@]:1}")
  if [[ ${policy[0]} == specific ]]; then return; fi
  versions_in "${spec[$1:$2:path]}"
  needed=("${found[@]}")
  if [[ ${policy[0]} == latest ]]; then needed=("${found[@]:0:policy[1]}"); fi
}

# check: what would block servers, or could never be loaded, is refused before anything is written.
check() {
  local model path version label
  for model in ${spec[new]}; do
    path=${spec[new:$model:path]}
    if [[ ! -d $path ]]; then fail "$model: $path is no folder of the node: nothing was changed"; fi
    if has old "$model" && [[ ${spec[old:$model:path]} != "$path" ]]; then
      fail "$model: a server that has loaded it from ${spec[old:$model:path]} does not read it again from" \
        "$path: take the model out, run up, and put it in again, or give it another name. Nothing was changed"
    fi
    versions_of new "$model"
    versions_in "$path"
    if ((${#needed[@]} == 0)); then fail "$model: $path holds no version: nothing was changed"; fi
    for version in "${needed[@]}"; do
      if [[ " ${found[*]} " != *" $version "* ]]; then
        fail "$model: $path has no version $version, only ${found[*]:-none}: nothing was changed"
      fi
    done
    for label in ${spec[new:$model:labels]}; do
      if [[ " ${needed[*]} " != *" ${label#*=} "* ]]; then
        fail "$model: label ${label%=*} names version ${label#*=}, and ${needed[*]} would be kept:" \
          "nothing was changed"
      fi
    done
  done
}

# remember_errors: what went wrong before; a server tells it until it tries that version again.
remember_errors() {
  local instance model version
  earlier=()
  for instance in "${running[@]}"; do
    for model in ${spec[new]}; do
      ask_states "$instance" "$model" || break # it hangs: once is enough
      for version in "${!why[@]}"; do earlier[$instance $model $version]=${why[$version]}; done
    done
  done
}

# wait_loaded WHICH: until each server that runs has loaded every version of the list.
wait_loaded() {
  local instance model version needed_now this read_by=$((SECONDS + 2 * poll_s))
  for instance in "${running[@]}"; do
    for model in ${spec[$1]}; do
      versions_of "$1" "$model"
      needed_now=("${needed[@]}")
      for version in "${needed_now[@]}"; do
        until ask_states "$instance" "$model" && [[ ${state[$version]-} == AVAILABLE ]]; do
          this="$instance $model $version"
          if [[ ! ${why[$version]-} ]]; then
            if [[ ${state[$version]-} ]]; then earlier[$this]=; fi # it is at it again
          elif [[ ${why[$version]} != "${earlier[$this]-}" ]] || ((SECONDS > read_by)); then
            reason="$instance cannot load version $version of $model: ${why[$version]}"
            return 1
          fi
          still_time "$instance has not loaded version $version of $model" || return 1
        done
      done
    done
  done
}

# wait_labels: until each server that runs answers under every label with the version that it is to name.
wait_labels() {
  local instance model label
  for instance in "${running[@]}"; do
    for model in ${spec[new]}; do
      for label in ${spec[new:$model:labels]}; do
        until names_version "${address[$instance]%/*}" "${address[$instance]#*/}" \
          "$model" "${label%=*}" "${label#*=}"; do
          still_time "label ${label%=*} of $model does not name version ${label#*=} on $instance" || return 1
        done
      done
    done
  done
}

still_time() {
  if ((SECONDS < patience)); then sleep 0.3; else
    reason="$1 after $patience s"
    return 1
  fi
}

# labels_move MODEL: whether a label of it is another one than before.
labels_move() {
  local label
  for label in ${spec[new:$1:labels]}; do
    if ! has old "$1" || [[ " ${spec[old:$1:labels]} " != *" $label "* ]]; then return 0; fi
  done
  return 1
}

# union MODEL: what is loaded now and what is to be, in `policy`.
union() {
  local instance version
  versions_of new "$1"
  policy="specific ${needed[*]}"
  for instance in "${running[@]}"; do
    ask_states "$instance" "$1" || continue
    for version in "${!state[@]}"; do
      if [[ ${state[$version]} == AVAILABLE && " $policy " != *" $version "* ]]; then policy+=" $version"; fi
    done
  done
}

# move_labels: the versions of both lists under the old labels, then under the new ones.
move_labels() {
  local model labels path
  spec[both]='' spec[moved]=''
  for model in ${spec[new]}; do
    path=${spec[new:$model:path]} labels=
    if has old "$model"; then labels=${spec[old:$model:labels]}; fi
    union "$model"
    add both "$model" "$path" "$policy" "$labels"
    add moved "$model" "$path" "$policy" "${spec[new:$model:labels]}"
  done
  for model in ${spec[old]}; do
    if ! has new "$model"; then
      add both "$model" "${spec[old:$model:path]}" "${spec[old:$model:versions]}" "${spec[old:$model:labels]}"
    fi
  done
  say "loading what the labels are to name"
  write_list both && wait_loaded new || return 1
  say "moving labels"
  write_list moved && wait_labels
}

change() {
  local model moves='' stay=()
  for model in ${spec[new]}; do
    if has old "$model" && has served "$model"; then stay+=("$model"); fi
    if labels_move "$model"; then moves=1; fi
  done
  write_serving "${stay[@]}" || return 1
  if [[ $moves ]] && ((${#running[@]})); then move_labels || return 1; fi
  put "$wanted" 0644 - "$file" && wait_loaded new
}

# follows INSTANCE: it reads the list that is there. Where versions have lists of their own it may still read
# another one, until it is replaced.
follows() {
  local model version
  if [[ ! $by_version ]]; then return 0; fi
  for model in ${spec[old]}; do
    versions_of old "$model"
    ask_states "$1" "$model" || return 1
    for version in "${needed[@]}"; do
      # It may still load one, or have failed to; one that it has let go of is END without an error.
      if [[ ! ${why[$version]-} && ${state[$version]-} != @(START|LOADING|AVAILABLE) ]]; then return 1; fi
    done
  done
}

# find_running: the instances whose port is open. The others read the list as they start.
find_running() {
  local instance found_running=()
  running=()
  # Side by side: each one that is away costs seconds.
  for instance in "${instances[@]}"; do (reach "$instance" && : >"$from/runs.$instance") & done
  wait
  for instance in "${instances[@]}"; do
    if [[ -e $from/runs.$instance ]]; then found_running+=("$instance"); else say "$instance does not run"; fi
  done
  for instance in "${found_running[@]}"; do
    if follows "$instance"; then running+=("$instance"); else say "$instance has another list"; fi
  done
}

# all_served: whether health checks may ask for every model.
all_served() {
  local model
  for model in ${spec[new]}; do has served "$model" || return 1; done
}

# one_list: has the instances of one list follow it.
one_list() {
  local served=()
  wanted=$from/files/$file
  read_list new "$wanted"
  if [[ -e $volume/$file.serving ]]; then mapfile -t served <"$volume/$file.serving"; fi
  spec[old]='' spec[served]="${served[*]}"
  if [[ -e $volume/$file ]]; then
    cp "$volume/$file" "$from/before.config"
    read_list old "$from/before.config"
  fi
  # Servers are stopped for it: what they could not load then must be told before.
  if [[ $by_version ]]; then check; fi
  if [[ ! -e $volume/$file ]]; then
    # No server has been started with it yet.
    # shellcheck disable=SC2086
    write_serving ${spec[new]}
    put "$wanted" 0644 - "$file"
  elif [[ $(<"$volume/$file") != "$(<"$wanted")" ]]; then
    find_running
    if ((${#running[@]})); then check; fi
    remember_errors
    if ! change; then
      write_serving "${served[@]}"
      put "$from/before.config" 0644 - "$file"
      fail "$reason. The list of models is what it was before; what served then still does"
    fi
    # shellcheck disable=SC2086
    write_serving ${spec[new]}
  elif ! all_served; then
    say "waiting for what an earlier run left"
    if [[ $by_version ]]; then sleep "$poll_s"; fi # who follows the list is told by what it does with it
    find_running
    remember_errors
    if ! wait_loaded new; then
      fail "$reason. An earlier run put the list of models there and was cut off; health checks do not ask for" \
        "what that run was to load"
    fi
    # shellcheck disable=SC2086
    write_serving ${spec[new]}
  fi
  say "models:${spec[new]}"
}

trap '' PIPE # a server that goes away while it is asked is no reason to end
file=
mapfile -t settings <"$from/then/settings"
for line in "${settings[@]}" 'file'; do
  read -r kind first second <<<"$line"
  case $kind in
    wait) patience=$first ;;
    by-version) by_version=1 ;;
    instance) instances+=("$first") && address[$first]=$second ;;
    file)
      if [[ $file ]]; then one_list; fi
      file=$first instances=() by_version=
      ;;
  esac
done
