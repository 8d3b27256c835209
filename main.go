// Mlx5d is a whole userspace driver for NVIDIA ConnectX NICs and an appliance
// that inspects what they receive. README.md says how to use it, nic.go how it
// works.
package main

// main.go owns the process: signals, what is printed where, and the exit code. It
// is the only place that prints errors or exits. Flags are options.go's, what a
// run does is appliance.go's.

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"mlx5d/model"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // failed while running
	exitUsage  = 2 // wrong use or bad input
	exitLost   = 3 // the device is gone, or the host asked for it
)

// logger writes messages to w in the chosen form.
func logger(w io.Writer, form string) *slog.Logger {
	if form == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// exitCode sorts errors by whose fault they are.
func exitCode(err error) int {
	var wish wishError
	var input *model.InputError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errDeviceLost), errors.Is(err, errWantedBack):
		return exitLost
	case errors.As(err, &wish), errors.As(err, &input), errors.Is(err, errBadAddress):
		return exitUsage
	default:
		return exitFailed
	}
}

// flatten joins the lines of a message, so that one failure is one line.
func flatten(s string) string {
	return string(bytes.ReplaceAll([]byte(s), []byte("\n"), []byte("; ")))
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, flags, err := parseOptions(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage(flags))
		return exitDone
	case err == nil && o.showVersion:
		fmt.Fprintln(stdout, "mlx5d", version)
		return exitDone
	case err == nil && o.list:
		var list []functionInfo
		if list, err = listFunctions(realSysfs()); err == nil {
			err = printFunctions(stdout, list, o.asJSON)
		}
	case err == nil && o.bench != "":
		err = runBench(o.bench, o.asJSON, stdout)
	case err == nil && o.serve != "":
		err = runServe(ctx, o, stdout)
	case err == nil && o.attach != "":
		err = runAttach(ctx, o, logger(stderr, o.logForm), stdout)
	case err == nil && o.write == "-": // frames have standard output
		err = runAppliance(ctx, o, logger(stderr, o.logForm), stderr)
	case err == nil:
		err = runAppliance(ctx, o, logger(stderr, o.logForm), stdout)
	}
	if err != nil {
		fmt.Fprintf(stderr, "mlx5d: %s\n", flatten(err.Error()))
	}
	return exitCode(err)
}

// stopSignals are the signals that end a run with its clean-up: a NIC must not stay
// unbound since the terminal went away. Who runs us under nohup, or as init.go does, has
// SIGHUP ignored, and so it stays.
func stopSignals() []os.Signal {
	list := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

func main() {
	runAsInit() // returns unless this is process 1 of a machine
	if what := os.Getenv(benchChild); what != "" {
		if err := runBenchChild(what); err != nil {
			fmt.Fprintln(os.Stderr, "mlx5d:", err)
			os.Exit(exitFailed)
		}
		return
	}
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away is a failed write, not a death
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
