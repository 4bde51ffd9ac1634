package bench

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// guardScript ends the process group $1 as [process.stop] does, within $2 seconds, unless a
// line on its input says that this was done. The end of its input is the death of hsx,
// whatever killed it. The terminal's signals are for hsx alone.
const guardScript = `trap '' INT TERM HUP
read -r done && exit
kill -TERM "-$1"
while [ "$2" -gt 0 ] && kill -0 "-$1"; do sleep 1; set -- "$1" $(($2 - 1)); done
kill -KILL "-$1"`

// guard is a process that outlives this one to end the server that it started.
type guard struct {
	cmd  *exec.Cmd
	line *os.File // to its input; only this process has it open
}

// guardGroup starts a guard of a process group.
func guardGroup(group int, grace time.Duration) (*guard, error) {
	input, line, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("guard the server: %w", err)
	}
	seconds := int64((grace + time.Second - 1) / time.Second)
	cmd := exec.Command("/bin/sh", "-c", guardScript, "sh", strconv.Itoa(group), strconv.FormatInt(seconds, 10))
	cmd.Stdin = input
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // not in the group that it ends
	err = cmd.Start()
	_ = input.Close() // the guard has its own
	if err != nil {
		_ = line.Close() // nobody reads it
		return nil, fmt.Errorf("guard the server: %w", err)
	}
	return &guard{cmd, line}, nil
}

// dismiss ends the guard: there is nothing left to end. If it is dead already, it cannot
// do harm either.
func (g *guard) dismiss() {
	_, _ = g.line.WriteString("done\n")
	_ = g.line.Close()
	_ = g.cmd.Wait()
}
