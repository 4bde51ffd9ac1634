//go:build slurm

// Package slurm_test runs the scripts of examples/slurm as they stand on a real Slurm of
// one node, kills and requeues tasks on the way, and compares what they make with one
// undisturbed run.
//
// HSX_BIN is the program, HSX_WORK a directory for the daemons' state and logs. It
// should have a short name: munge listens on a socket in it.
package slurm_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slurm is a cluster of this machine that lives as long as its test.
type slurm struct {
	dir string   // of state and logs
	env []string // of its commands
}

const conf = `ClusterName=hsx
SlurmctldHost=localhost
SlurmctldPort=%[2]d
SlurmdPort=%[3]d
SlurmUser=%[4]s
SlurmdUser=%[4]s
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1
SwitchType=switch/none
MpiDefault=none
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd.pid
SlurmdSpoolDir=%[1]s/spool
StateSaveLocation=%[1]s/state
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=5
NodeName=localhost NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
`

// startSlurm starts munge, the controller and the node's daemon.
func startSlurm(t *testing.T) *slurm {
	t.Helper()
	dir, err := os.MkdirTemp(env(t, "HSX_WORK"), "")
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() { // else the logs are wanted
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	var key [1024]byte
	_, _ = rand.Read(key[:]) // never fails
	err = errors.Join(os.WriteFile(at("key"), key[:], 0o400), os.Mkdir(at("spool"), 0o755), os.Mkdir(at("state"), 0o700),
		os.WriteFile(at("slurm.conf"), fmt.Appendf(nil, conf, dir, freePort(t), freePort(t), me.Username), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	s := &slurm{dir: dir, env: append(os.Environ(), "SLURM_CONF="+at("slurm.conf"), "HSX="+env(t, "HSX_BIN"))}
	s.daemon(t, "munged", "--foreground", "--force", "--key-file="+at("key"), "--socket="+at("munge.socket"),
		"--pid-file="+at("munged.pid"), "--log-file="+at("munged.log"), "--seed-file="+at("seed"))
	s.wait(t, "munge", func() bool { _, err := os.Stat(at("munge.socket")); return err == nil })
	s.daemon(t, "slurmctld", "-D", "-c")
	s.daemon(t, "slurmd", "-D", "-c")
	s.wait(t, "an idle node", func() bool {
		out, err := s.command("sinfo", "--noheader", "--format=%T").CombinedOutput()
		return err == nil && strings.TrimSpace(string(out)) == "idle"
	})
	return s
}

// daemon starts a program that is ended with the test, by its process.
func (s *slurm) daemon(t *testing.T, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(s.dir, name+".out"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := s.command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C is for the test, which ends it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%s was not there at the end: %v", name, err)
		}
		end := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // how a daemon ends is its own
		end.Stop()
	})
}

// command is a program of this cluster.
func (s *slurm) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = s.env
	return cmd
}

// output is what a command prints.
func (s *slurm) output(t *testing.T, name string, args ...string) string {
	t.Helper()
	var talk bytes.Buffer
	cmd := s.command(name, args...)
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, &talk)
	}
	return strings.TrimSpace(string(out))
}

// job is what Slurm says of a job, or of one task of an array.
func (s *slurm) job(t *testing.T, id string) map[string]string {
	t.Helper()
	facts := map[string]string{}
	for _, f := range strings.Fields(s.output(t, "scontrol", "show", "job", "--oneliner", id)) {
		if name, value, ok := strings.Cut(f, "="); ok {
			facts[name] = value
		}
	}
	return facts
}

// wait waits until something is so, for a minute and a half at most.
func (s *slurm) wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			queue, _ := s.command("squeue", "--all", "--states=all").CombinedOutput()
			t.Fatalf("no %s; logs are in %s\n%s", what, s.dir, queue)
		}
	}
}

func env(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set, want it as `make slurm` sets it", name)
	}
	return v
}

// freePort is one that nobody listens on at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
