package bench

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestGuard ends the input of a guard as the death of hsx does: a group that does not
// want to end is made to. One that was dismissed ends nothing.
func TestGuard(t *testing.T) {
	t.Parallel()
	for name, dismissed := range map[string]bool{"hsx died": false, "dismissed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := exec.Command("/bin/sh", "-c", "trap '' TERM; echo up; sleep 100")
			server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 3)); err != nil { // now it ignores the signal
				t.Fatal(err)
			}
			g, err := guardGroup(server.Process.Pid, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if dismissed {
				g.dismiss()
				if err := syscall.Kill(-server.Process.Pid, syscall.SIGINT); err != nil {
					t.Errorf("server: got error %v, want it to be there", err)
				}
			} else if err := g.line.Close(); err != nil {
				t.Fatal(err)
			}
			_ = server.Wait() // the state tells
			status, _ := server.ProcessState.Sys().(syscall.WaitStatus)
			want := syscall.SIGKILL
			if dismissed {
				want = syscall.SIGINT
			}
			if status.Signal() != want {
				t.Errorf("server ended by %v, want %v", status.Signal(), want)
			}
			if !dismissed {
				_ = g.cmd.Wait() // it has nothing to say
			}
		})
	}
}
