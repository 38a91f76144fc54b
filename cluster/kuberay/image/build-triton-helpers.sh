#!/bin/sh
# Compile, while there is still a compiler, the one C file that Triton would compile when it first meets a GPU.
#   build-triton-helpers.sh SITE_PACKAGES OUTPUT_FOLDER
# Each helper is named by the hash of its source; triton-cc.sh hands it out. Fails where Triton would compile more than
# this file, which versions without a launcher of their own in it do.
set -eu
site_packages=$1
output=$2
include=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
stub=$(mktemp -d)
cc -shared -x c /dev/null -o "$stub/libcuda.so.1"  # to link against; the real one comes with the driver
mkdir -p "$output"
found=0
for source in "$site_packages"/*/backends/nvidia/driver.c; do
  [ -f "$source" ] || continue
  grep -q '"launch"' "$source" || {
    echo "error: $source has no launcher, so this Triton compiles one for every kernel and needs a compiler" >&2
    exit 1
  }
  hash=$(sha256sum <"$source" | cut -d ' ' -f 1)
  cc "$source" -O3 -shared -fPIC -Wno-psabi -o "$output/$hash.so" \
    -l:libcuda.so.1 "-L$stub" "-I$(dirname "$source")/include" "-I$include"
  found=$((found + 1))
done
rm -r "$stub"
[ "$found" -gt 0 ] || {
  echo "error: no Triton under $site_packages" >&2
  exit 1
}
echo "$found helper(s) in $output"
