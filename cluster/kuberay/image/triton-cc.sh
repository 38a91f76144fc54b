#!/bin/sh
# Stands where Triton looks for a C compiler (the variable CC) in an image that has none: hands out the helper that
# build-triton-helpers.sh compiled from the very same source, and refuses everything else.
#   triton-cc.sh SOURCE ... -o OUTPUT ...
set -eu
helpers=${TRITON_HELPERS:?the folder of the helpers}
source=
output=
previous=
for argument in "$@"; do
  case $argument in
    *.c) source=$argument ;;
  esac
  [ "$previous" != -o ] || output=$argument
  previous=$argument
done
if [ -z "$source" ] || [ -z "$output" ]; then
  echo "error: this image has no compiler; asked for: $*" >&2
  exit 1
fi
helper=$helpers/$(sha256sum <"$source" | cut -d ' ' -f 1).so
if [ ! -f "$helper" ]; then
  echo "error: this image has no compiler, and no helper was built from $source" >&2
  exit 1
fi
cp "$helper" "$output"
