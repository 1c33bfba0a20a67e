# phoenixNAP cloud provider for Kubernetes. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# A version without a leading vX.Y.Z makes the Kubernetes libraries panic at start.
VERSION ?= $(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || echo v0.0.0-$$(git describe --always --dirty 2>/dev/null || echo unknown))
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The time that stands on files of images and releases: equal sources make equal bytes (https://reproducible-builds.org/specs/source-date-epoch).
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
DIST ?= dist/bin
COMPONENT := k8s.io/component-base/version
LDFLAGS := -s -w -buildid= -X $(COMPONENT).gitVersion=$(VERSION) -X $(COMPONENT).gitCommit=$(COMMIT)
# Tests are compiled as the programs are released, without cgo and without paths of this machine, so both, and Kubernetes,
# share what is compiled, and the virtual machine runs tests as they are. Only the race detector needs cgo.
export CGO_ENABLED ?= 0
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null)) -trimpath
race test-long: export CGO_ENABLED = 1
# Linters, govulncheck and test runner, pinned in a module of their own.
DEV := go tool -modfile=test/env/tools/dev/go.mod
TEST := $(DEV) gotestsum --format pkgname --
# make lint runs vet.
TESTFLAGS ?= -shuffle=on -timeout 40m -vet=off

# What runs in a cluster runs on Linux.
IN_CLUSTER := $(foreach p,linux-amd64 linux-arm64,$(foreach n,phoenixnap-cloud-controller-manager phoenixnap-agent,$(DIST)/$(n)-$(p)))
BINARIES := $(IN_CLUSTER) $(foreach p,linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64,$(DIST)/kubectl-pnap-$(p))
# What make images works on and, with PREBUILT, packs.
REGISTRY ?=
TAG ?=
PLATFORMS ?= linux/amd64,linux/arm64
ENGINE ?=
BASE_IMAGE ?=
PACKED := $(IN_CLUSTER) $(DIST)/ca-certificates.crt $(DIST)/third-party-licenses.txt
package_phoenixnap-cloud-controller-manager := ./controller
package_phoenixnap-agent := ./agent
package_kubectl-pnap := ./controller/kubectl-pnap

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

.PHONY: demo
demo: go ## From two bare servers to a public address that answers, shown step by step (KEEP=1 leaves it running, AUTO=1 configures no VLAN by hand, CNI=flannel connects the pods with Flannel, NETWORKS=2 has two locations with a public network each, PNAPCTL=path shows the account with phoenixNAP's pnapctl)
	go run ./test/demo/cmd/demo $(if $(KEEP),--keep) $(if $(AUTO),--auto) $(if $(CNI),--cni='$(CNI)') $(if $(NETWORKS),--networks='$(NETWORKS)') $(if $(PNAPCTL),--pnapctl='$(PNAPCTL)')

.PHONY: recordings
recordings: go ## Play the demo and draw from it the terminals that README.md shows
	go run ./test/demo/cmd/recordings

# The packages whose tests start a cluster, another virtual machine (both where the running kernel lacks 802.1Q), or a
# control plane. One cluster and one other virtual machine at a time, with the highest priority: an emulated machine has
# timers to serve, and one that gets less than half a processor hardly does anything else. What takes or waits longest begins.
LONGEST := %/test/demo %/test/scenario/networkd %/v2/controller %/test/repo/docs %/test/repo/deploy
AGENTS := $(addprefix $(shell sed -n 's/^module //p' go.mod)/test/scenario/,announce agent)
FIRST = $(filter $(LONGEST),$(1)) $(filter-out $(LONGEST),$(1))
TESTS_WITH = $(shell go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | \
	awk '$$1 ~ /\.test$$/ && /\/test\/env\/($(1))(\.test| |$$)/ {sub(/\.test$$/, "", $$1); print $$1}' | sort -r)
# Each is listed once, when it is needed; make test hands the lists on.
CLUSTER = $(eval CLUSTER := $(filter-out $(AGENTS),$(call TESTS_WITH,lab)))$(CLUSTER)
MACHINE = $(eval MACHINE := $(filter-out $(CLUSTER) $(AGENTS),$(call TESTS_WITH,kernel\/machine)))$(MACHINE)
API = $(eval API := $(filter-out $(CLUSTER) $(MACHINE) $(AGENTS),$(call TESTS_WITH,controlplane)))$(API)
# All others only compute.
OTHER = $(eval OTHER := $(filter-out $(CLUSTER) $(MACHINE) $(AGENTS) $(API),$(shell go list ./...)))$(OTHER)
# With Go's default of 100, tests and above all the start of a kube-apiserver spend much of their time collecting garbage.
lint test test-api test-minor race: export GOGC ?= 400
ifdef LOOPS
$(if $(shell [[ "$(LOOPS)" =~ ^[0-9]+$$ ]] && echo ok),,$(error LOOPS=$(LOOPS): give the number of busy loops to run beside the tests, such as 3))
endif
.PHONY: test
test: prepare ## Run all tests, and print how long they took and the ten packages that took longest (LOOPS=3 keeps the processors busy meanwhile)
	@go list -export ./... >/dev/null # compiles what all parts need
	@loops=; for i in $$(seq $(or $(LOOPS),0)); do while :; do :; done & loops+=" $$!"; done; \
	results=$$(mktemp -d) && trap "rm -rf $$results; $${loops:+kill$$loops}" EXIT && failed=0 && began=$$(date +%s) && mkdir $$results/programs && \
	{ PNAP_RUN=$$results/programs $(MAKE) --no-print-directory test-parts RESULTS=$$results || failed=$$?; } && \
	cat $$results/*.json | sed -nE 's#.*"Action":"(pass|fail)","Package":"[^"]*/v2/([^"]*)","Elapsed":([0-9.]+)}.*#\3 \2#p' | sort -rn | head -10 | \
	awk '{gsub("/", "_", $$2); print "figure test_seconds_" $$2, $$1, "s"}' && \
	echo "figure test_seconds $$(( $$(date +%s) - began )) s" && exit $$failed

# The parts of make test, side by side. What only computes, and what is short with an API server, follows the labs, which it
# would disturb. Only root can raise the priority of a process; so that and the API servers have a low one to their end, but
# not the lowest: beside busy programs that hardly runs.
PARTS = test-clusters test-machines test-apis
RESULTS ?= $(DIST)
# A part that runs several times gives its results several names.
PART = test/env/run-tests $(RESULTS)/$@$(1).json $(TESTFLAGS)
.PHONY: test-parts $(PARTS)
test-parts:
	@$(MAKE) --no-print-directory --keep-going --jobs=3 $(PARTS) CLUSTER="$(CLUSTER)" MACHINE="$(MACHINE)" API="$(API)" OTHER="$(OTHER)"
test-clusters: go
	@$(PART) -p 1 $(call FIRST,$(CLUSTER))
test-machines: go
	@failed=0; $(call PART,-announce) $(firstword $(AGENTS)) || failed=$$?; $(PART) -p 1 $(call FIRST,$(MACHINE)) || failed=$$?; \
	$(call PART,-agent) $(lastword $(AGENTS)) || failed=$$?; nice -n 5 $(call PART,-other) -p 2 $(filter-out $(LONGEST),$(API)) $(OTHER) || failed=$$?; exit $$failed
test-apis: go
	@nice -n 5 $(PART) -p 1 $(filter $(LONGEST),$(API))

# The packages whose tests start no control plane and no virtual machine, and build or download nothing.
HEAVY := env/controlplane|env/kernel|env/lab|env/cluster|env/tools|repo/build|repo/development|repo/mutants|repo/portability
UNIT = $(shell go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | \
	awk '$$1 ~ /\.test$$/ && !/\/test\/($(subst /,\/,$(HEAVY)))( |$$)/ {sub(/\.test$$/, "", $$1); print $$1}')
.PHONY: unit
unit: go ## Run the tests that need nothing but Go, without the race detector; takes a minute or two
	go test $(UNIT)

.PHONY: test-api
test-api: go ## Run the tests that need an API server, which is built first, and no other kernel; takes a few minutes
	go run ./test/env/tools/cmd/tools etcd kube-apiserver >/dev/null
	$(TEST) $(TESTFLAGS) $(API)

# The packages whose code or tests start goroutines or share memory between them, parallel tests included, but the election:
# only its tests count something together, for minutes. All of the controller also runs in the walks, in one process.
RACED = $(filter-out %/announce/election,$(addprefix $(shell sed -n 's/^module //p' go.mod)/,$(patsubst %/,%,$(sort $(dir $(shell grep -rlE \
	'^\s*go [a-z]|\bchan\b|"sync"|"sync/atomic"|x/sync/errgroup|t[.]Parallel' --include='*.go' agent controller pkg test/sim))))))
# Not the longest test: the controller that it starts is a process, built as it is released.
PROCESSES := ^TestTheWholeController$$
.PHONY: race
race: go ## Run the tests of the product, and two random walks, with the race detector; takes about ten minutes
	go run ./test/env/tools/cmd/tools etcd kube-apiserver >/dev/null
	$(TEST) -race $(TESTFLAGS) -skip '$(PROCESSES)' $(RACED)
	$(TEST) -race $(TESTFLAGS) ./test/scenario/walk -run 'TestWalk/seeds/^[01]$$'

.PHONY: test-long
test-long: prepare ## Run all tests, random walks with fifty times as many seeds, the announcer's model with 100,000
	PNAP_SEED_FACTOR=50 $(TEST) -race $(TESTFLAGS) -timeout 120m ./...
	PNAP_SEED_FACTOR=500 go test ./agent/announce/election -run 'TestModel$$|TestOneFault|TestScale' -count=1 -timeout 120m -v | grep -v '^ *\(=== \|--- PASS\)'

.PHONY: test-minors
test-minors: prepare ## Run what make test-api runs against kube-apiservers of three Kubernetes minors, the older ones built first
	@for minor in $(MINORS); do $(MAKE) --no-print-directory test-minor MINOR=$$minor; done

MINORS ?= 1.37 1.36 1.35
.PHONY: test-minor
test-minor: go
	@programs=$$(PNAP_KUBERNETES_MINOR=$(MINOR) go run ./test/env/tools/cmd/tools kube-apiserver kube-controller-manager kube-scheduler) && \
	echo "Kubernetes $(MINOR):" $$programs
	@results=$$(mktemp) && trap "rm -f $$results" EXIT && \
	PNAP_KUBERNETES_MINOR=$(MINOR) $(DEV) gotestsum --format pkgname --jsonfile $$results -- $(TESTFLAGS) -count=1 $(API) && \
	echo "figure tests_on_kubernetes_$(subst .,_,$(MINOR)) $$(grep -c '"Action":"pass".*"Test":' $$results) tests"

.PHONY: bench
bench: prepare ## Measure the cost of controller and agent, one figure a line; takes about twenty minutes
	go run ./test/bench/controller/cmd/bench
	go run ./test/bench/agent/cmd/agentbench
	go run ./test/bench/agent/cmd/localservices

.PHONY: bench-failover
bench-failover: prepare ## Measure the outage when the announcing node fails, with the agents' announcer and with kube-vip; takes more than an hour
	go run ./test/bench/failover/cmd/failover

.PHONY: bench-scale
bench-scale: go ## Count what the agents of 100 nodes that announce 500 addresses ask of the API server, by the model; takes a minute or two
	PNAP_SEED_FACTOR=100 go test ./agent/announce/election -run 'TestScale$$' -count=1 -timeout 20m -v | grep -v '^ *\(=== \|--- PASS\)'

# What a verbose test prints, without the names of the tests that pass.
QUIETLY := sed -e '/^ *\(=== \|--- PASS\)/d' -e 's/^    //'
.PHONY: faults
faults: prepare ## Break servers of the lab, and kube-vip on them, in every way that has a finding, and measure when it is reported and repaired; takes about twenty minutes
	go run ./test/scenario/faults/cmd/faults
	PNAP_SEED_FACTOR=3 go test ./test/scenario/kubevip -run TestStates -count=1 -v -hold | $(QUIETLY)
	go test ./test/scenario/agent -run '^Test(SeenByKernelEvent|Repairs|ReturnPathReconciler)$$' -count=1 -v -hold | $(QUIETLY)
	go test ./test/scenario/networkd -run '^TestRestart$$' -count=1 -v -hold | $(QUIETLY)
	go test ./test/scenario/returnpath -run '^TestReplies$$' -count=1 -v -hold | $(QUIETLY)
	go test ./controller -run '^TestHandOver$$' -count=1 -v -hold | $(QUIETLY)

.PHONY: disturb
disturb: prepare ## Disturb the managed return path 200 times in every way, and check each time that everything is listed as before; takes an hour or more
	PNAP_SEED_FACTOR=200 go test ./test/scenario/agent -run TestEverythingIsListedAsBefore -count=1 -timeout 240m -v | grep --line-buffered -v '^ *\(=== \|--- PASS\)'

.PHONY: walk
walk: go ## Walk 100 random walks of the controller and print what they found (a part of make test and make test-long)
	PNAP_SEED_FACTOR=20 go test ./test/scenario/walk -run TestWalk -count=1 -timeout 60m -v | grep -v '^ *\(=== \|--- PASS\)'

# How long each parser is fuzzed.
FUZZTIME ?= 10s
.PHONY: fuzz
fuzz: go ## Give each parser random input, one after the other (FUZZTIME=10s each); takes about ten minutes
	@grep -roE '^func Fuzz[A-Za-z]+' --include=*_test.go agent controller pkg test | sort | \
	sed -E 's,^(.*)/[^/]*:func (.*)$$,./\1 \2,' | (count=0; while read -r package name; do echo "$$name"; \
	go test "$$package" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) | sed -e '/^fuzz: /d' -e '/^PASS/d'; \
	count=$$((count + 1)); done; echo "figure fuzz_targets $$count targets")

.PHONY: mutants
mutants: go ## Change one decision of controller or agent at a time and print which changes no test detects; takes a few hours (ARGS='-only plan/ -generated 50')
	go run ./test/repo/mutants/cmd/mutants $(ARGS)

.PHONY: conformance-live
conformance-live: go ## Ask a real phoenixNAP account what is not documented about it; reads only, unless ARGS='--buy …' (see --help)
	go run ./test/sim/conformance/cmd/conformance $(ARGS)

.PHONY: run-local
run-local: go ## Run the controller here: CCM_SECRET, KUBECONFIG, PNAP_LOCATION, PNAP_LOAD_BALANCER (ARGS=… are its flags)
	@./controller/run-local $(ARGS)

.PHONY: lint
lint: go ## Run the linters, also over the workflows, and check that go.mod is tidy
	$(DEV) golangci-lint run ./...
	$(DEV) actionlint -shellcheck= -pyflakes=
	go mod tidy -diff

.PHONY: vulncheck
vulncheck: go ## Search the programs for known vulnerabilities that they can reach, where the database can be reached
	@go run ./test/repo/build/cmd/vulncheck $(ARGS)

.PHONY: figures
figures: go ## Measure the repository: lines, packages, lengths of functions and of the guides, documentation, words, files that a new check touches
	@go run ./test/repo/figures/cmd/figures

.PHONY: docs
docs: go ## Write the reference (findings, options, names, conditions, events) from the code, and the list of the values of the chart
	go run ./test/repo/docs/cmd/reference

CRDS := deploy/crds
COPIES := pkg/api/v1beta1
.PHONY: crds
crds: go ## Generate the definition of the kinds in deploy/crds, and what copies their objects, from the types in pkg/api
	go tool -modfile=test/env/tools/generate/go.mod controller-gen crd:maxDescLen=400 object paths=./pkg/api/... \
		output:crd:dir='$(CRDS)' output:object:dir='$(COPIES)'

.PHONY: manifests
manifests: go ## Render every overlay to deploy/rendered/<overlay>/deployment.yaml (TAG=v2.0.0 sets the version of the images)
	go run ./test/repo/deploy/cmd/manifests $(if $(TAG),-version $(TAG))

# Build tags, which only tests set: what is released has none, whatever the environment says.
TAGS :=
.PHONY: build
build: $(BINARIES) ## Build static binaries into dist/bin/<name>-<os>-<arch>

platform = $(subst -, ,$*)
name = $(patsubst %-$(lastword $(platform)),%,$*)
$(DIST)/%: go FORCE
	CGO_ENABLED=0 GOOS=$(lastword $(subst -, ,$(name))) GOARCH=$(lastword $(platform)) go build -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '$(LDFLAGS)' \
		-o $@ $(package_$(patsubst %-$(lastword $(subst -, ,$(name))),%,$(name)))

# The licenses of what the programs are made of; images, archives and releases contain them.
$(DIST)/third-party-licenses.txt: go FORCE
	mkdir -p $(@D) && go run ./test/repo/licenses/cmd/licenses >$@

# The certificate authorities that the controller's image trusts are those of the machine that builds it.
$(DIST)/ca-certificates.crt: $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem))
	@test -n "$<" || { echo "This machine has no bundle of certificate authorities: install the package ca-certificates" >&2; exit 1; }
	mkdir -p $(@D) && install -m 0644 $< $@

.PHONY: images
images: $(if $(PREBUILT),$(PACKED)) go ## Build the images with docker, podman or buildah (REGISTRY, TAG, PLATFORMS, ENGINE, BASE_IMAGE; PREBUILT=1 packs dist/bin, PUSH=1 pushes)
	go run ./test/repo/image/cmd/images -stamp "$(VERSION) $(COMMIT) $(SOURCE_DATE_EPOCH)" -registry "$(REGISTRY)" -tag "$(TAG)" -platforms "$(PLATFORMS)" \
		-engine "$(ENGINE)" -base "$(BASE_IMAGE)" $(if $(PREBUILT),-prebuilt $(DIST)) $(if $(PUSH),-push) $(ARGS)

.PHONY: services
services: prepare ## Serve every kind of Service through kube-vip and through the agents, and show what edits cost; takes about twenty minutes (CNI=flannel connects the pods with Flannel)
	PNAP_CNI='$(CNI)' go test -tags services ./test/scenario/services -count=1 -timeout 40m -v

.PHONY: flannel
flannel: ## The demo and all kinds of Services once more, with pods that Flannel connects
	$(MAKE) demo services CNI=flannel

.PHONY: e2e
e2e: prepare ## Install, use, upgrade and remove everything on a cluster with real kubelets, as the guides say (the logs of what failed are in dist/e2e)
	@rm -rf dist/e2e && mkdir -p dist/e2e
	go test -tags e2e ./test/scenario/e2e -run 'TestInstall|TestWorker|TestScale' -count=1 -timeout 60m -v -artifacts -outputdir dist/e2e

.PHONY: k8s-e2e
k8s-e2e: prepare ## Have Kubernetes' own tests of load balancers judge both announcers; takes an hour or more, and half an hour to build them first (FOCUS=regexp chooses tests; the logs are in dist/k8s-e2e)
	@rm -rf dist/k8s-e2e && mkdir -p dist/k8s-e2e
	go run ./test/env/tools/cmd/tools e2e.test agnhost coredns >/dev/null
	PNAP_K8S_FOCUS='$(FOCUS)' go test -tags e2e ./test/scenario/e2e -run 'TestKubernetes$$' -count=1 -timeout 240m -v -artifacts -outputdir dist/k8s-e2e

RELEASE := go run ./test/repo/release/cmd/release
.PHONY: release
release: build $(DIST)/ca-certificates.crt ## Put a release together in dist/release and print what make publish would run (REGISTRY, BASE_IMAGE; E2E=1 runs make e2e on it)
	$(RELEASE) -programs $(DIST) $(if $(REGISTRY),-registry "$(REGISTRY)")
	$(if $(E2E),PNAP_RELEASE="$(CURDIR)/dist/release" $(MAKE) --no-print-directory e2e)
	$(if $(E2E),$(RELEASE) -tested)

.PHONY: publish
publish: go ## Publish and sign the release in dist/release, on GitHub too, if make release E2E=1 has tested exactly that one
	$(RELEASE) -publish

.PHONY: release-notes
release-notes: go ## Print what CHANGELOG.md says about VERSION; it is what the release on GitHub says
	@go run ./test/repo/release/cmd/notes $(VERSION)

.PHONY: version
version: ## Print what binaries and images are stamped with: version, commit, time
	@echo "$(VERSION) $(COMMIT) $(SOURCE_DATE_EPOCH)"

.PHONY: prepare
prepare: go ## Build the control plane, kube-vip and the packages that tests and demo need (cached)
	go run ./test/env/kernel/cmd/prepare
	go run ./test/env/tools/cmd/tools all >/dev/null

.PHONY: clean
clean: ## Remove what make build made
	rm -rf dist

.PHONY: go FORCE
go:
	@command -v go >/dev/null || { echo "Go is missing: install Go $$(sed -n 's/^go //p' go.mod) or newer from https://go.dev/dl and put it into PATH" >&2; exit 1; }
FORCE:
