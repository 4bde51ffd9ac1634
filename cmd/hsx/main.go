// Command hsx stands between hidden-state dumps and the training of speculative
// drafts: it stores dumps as durable Arrow datasets and makes silent mistakes loud.
//
// This package holds the command line: flags, wiring, progress, printing and exit
// codes. The work is done in the packages that it introduces to each other.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// outlastReaders lets writing fail, until stop, where a reader of the output that leaves
// would end this process before what it has to end or remove.
func outlastReaders() (stop func()) {
	leaves := make(chan os.Signal, 1)
	signal.Notify(leaves, unix.SIGPIPE)
	return func() { signal.Stop(leaves) }
}

// run is the whole program but for the process around it.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, unix.SIGTERM)
	if !signal.Ignored(unix.SIGHUP) { // as nohup has it
		signal.Notify(signals, unix.SIGHUP)
	}
	defer signal.Stop(signals)
	go func() {
		select {
		case <-signals: // finish the current batch and commit
			cancel()
		case <-ctx.Done():
			return
		}
		<-signals // stop at once: what was committed is safe
		os.Exit(exitInterrupted)
	}()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return status(stderr, root.ExecuteContext(ctx))
}
