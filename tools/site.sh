#!/usr/bin/env bash
# tools/site.sh: builds the book as a site, build/site/index.html, which needs no network.
#
# The first call installs MkDocs Material into build/site-tools (tools/site/requirements.txt) and builds the
# calculator (tools/site/calculator.sh); later calls need no network either. A link or an anchor that leads
# nowhere is an error.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=build/site-tools
if ! cmp -s tools/site/requirements.txt "$tools/installed.txt"; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --requirement tools/site/requirements.txt
  cp tools/site/requirements.txt "$tools/installed.txt"
fi
tools/site/calculator.sh
NO_MKDOCS_2_WARNING=1 PYTHONPATH=tools/site "$tools/bin/mkdocs" build --strict --config-file tools/site/mkdocs.yml
echo "site: open build/site/index.html"
