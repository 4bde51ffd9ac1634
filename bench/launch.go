package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hsx/bench/server"
)

// process is a server that a measurement started, with all that it started itself: a
// process group of its own, which a ^C on the terminal does not reach.
type process struct {
	cmd  *exec.Cmd
	log  *os.File // both outputs
	from int64    // where this process's part of log begins
	done chan struct{}
	err  error // after done: how it ended

	grace time.Duration // between asking the group to end and making it
	guard *guard        // ends it when this process cannot
}

// gateScript is a command $1 that starts when a line says so, and not when hsx died before.
const gateScript = `read -r go && exec /bin/sh -c "$1" </dev/null`

// launch starts a command of the shell, whose output goes to the end of a file. From its
// first step on a guard sees to its end.
func launch(command, logName string, grace time.Duration) (*process, error) {
	log, err := os.OpenFile(logName, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the server's output: %w", err)
	}
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	p := &process{cmd: exec.Command("/bin/sh", "-c", gateScript, "sh", command), log: log, from: from, done: make(chan struct{}), grace: grace}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	gate, err := p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %q: %w", hideSecrets(command), err), log.Close())
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	p.guard, err = guardGroup(p.cmd.Process.Pid, grace)
	if err == nil {
		_, err = io.WriteString(gate, "go\n")
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("start %q: %w", hideSecrets(command), err)
	}
	return p, nil
}

// stop ends the whole group: it is asked to, and after the grace time made to.
func (p *process) stop() {
	group := -p.cmd.Process.Pid
	end := func(signal unix.Signal, within time.Duration) {
		_ = unix.Kill(group, signal) // one that is gone already is what is wanted
		for last := time.Now().Add(within); unix.Kill(group, 0) == nil && time.Now().Before(last); {
			await(context.Background(), time.Now().Add(20*time.Millisecond))
		}
	}
	end(unix.SIGTERM, p.grace)
	end(unix.SIGKILL, 5*time.Second) // the dead that nobody collects stay in the group
	<-p.done
	if p.guard != nil {
		p.guard.dismiss()
	}
	_ = p.log.Close() // the process wrote it, not this file
}

// state is nil while the process runs, and then how it ended, with its last words.
func (p *process) state() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	how := "exit status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("the started command ended (%s); it has to stay in the foreground. %s", how, p.lastWords())
}

// lastWords is the end of the process's output.
func (p *process) lastWords() string {
	const most, lines = 4096, 10
	size, err := p.log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Sprintf("its output cannot be read: %v", err)
	}
	text := make([]byte, min(most, size-p.from))
	n, err := p.log.ReadAt(text, size-int64(len(text)))
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Sprintf("its output cannot be read: %v", err)
	}
	all := bytes.Split(bytes.TrimSpace(text[:n]), []byte("\n"))
	last := string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
	if last == "" {
		return "it printed nothing to " + p.log.Name()
	}
	return fmt.Sprintf("the end of %s:\n%s", p.log.Name(), hideSecrets(last))
}

// logName is where the output of an arm's command goes: beside the journal.
func (j *Journal) logName(arm string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '/' || r == os.PathSeparator || r < ' ' {
			return '-'
		}
		return r
	}, arm)
	return strings.TrimSuffix(j.name, ".jsonl") + "." + clean + ".log"
}

// free reports an error when something answers already where a server is to be started:
// it would be measured in its place.
func (r *runner) free(ctx context.Context, arm Arm, link *Link) error {
	if info, err := link.Probe(ctx, r.plan.Params); err == nil {
		return fmt.Errorf("start %s: a %s server answers at its URL already, stop it first", arm.Name, info.Engine)
	}
	return ctx.Err()
}

// ready waits until a started server answers, and returns what it is.
func (r *runner) ready(ctx context.Context, arm Arm, link *Link, p *process) (*server.Info, error) {
	end := time.Now().Add(r.options.ReadyTimeout)
	var last error // the deadline itself says nothing of the server
	for {
		limited, cancel := context.WithDeadline(ctx, end)
		info, err := link.Probe(limited, r.plan.Params)
		if limited.Err() == nil || last == nil {
			last = err
		}
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case p.state() != nil:
			return nil, &serverError{fmt.Errorf("start %s: %w", arm.Name, p.state())}
		case err == nil:
			return info, nil
		}
		if !time.Now().Before(end) {
			return nil, &serverError{fmt.Errorf("start %s: not ready after %s: %w. %s", arm.Name, r.options.ReadyTimeout, last, p.lastWords())}
		}
		r.waiting(arm, last)
		select {
		case <-time.After(250 * time.Millisecond):
		case <-p.done:
		case <-ctx.Done():
		}
	}
}
