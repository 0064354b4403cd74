#!/bin/sh
# A Chromium with its driver, for the tests of pages. It says nothing where they are there.
set -u
cd "$(dirname "$0")" || exit 1
. ./packages.sh

has_one_of() {
    for name in "$@"; do command -v "$name" >/dev/null 2>&1 && return; done
    return 1
}

is_there() {
    has_one_of chromium chromium-browser google-chrome google-chrome-stable chrome && has_one_of chromedriver
}

is_there && exit
if can_apt; then apt_install chromium chromium-driver 2>/dev/null || apt_install chromium-browser chromium-chromedriver; fi
is_there || say "the tests of pages need Chromium and chromedriver; install them (Debian: chromium and chromium-driver)."
