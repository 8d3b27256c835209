# mlx5d: everything a newcomer needs. `make run` and `make test` first.
GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2

export CGO_ENABLED = 0

.PHONY: all build run test lint cross static bench lab image clean

all: build

# One static binary, no cgo.
build:
	$(GO) build -trimpath -o mlx5d .

# The main job without hardware: bring up the emulated NIC, inspect a mix of traffic.
run: build
	./mlx5d -emulate -wire gen

test:
	$(GO) test -timeout 40m ./...

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'gofmt would change these files'; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

# Builds for the other architecture that appliances run on.
cross:
	GOARCH=arm64 $(GO) build -o /dev/null .

# The binary must not need a loader: no dynamic section, no interpreter.
static: build
	@! readelf -d mlx5d | grep -q NEEDED && ! readelf -l mlx5d | grep -q INTERP && echo 'mlx5d is static'

# The appliance as an initramfs: our binary as /init and nothing else, plus the
# VFIO modules of the kernel that will boot it: MODULES=/lib/modules/VERSION.
image: build
	$(GO) run ./image -modules "$(MODULES)" -o build/mlx5d.img mlx5d

# Every figure, with the device faked in memory. valgrind adds instruction counts.
bench: build
	./mlx5d -bench all

# The unmodified Linux driver, and our own image, in virtual machines on the
# emulated device. Builds its tools once into a cache folder; needs root for that.
lab: build
	$(GO) run ./lab -mlx5d ./mlx5d $(if $(SCENARIO),-scenario $(SCENARIO))

clean:
	rm -rf mlx5d build lab/out
