//go:build objects

// Package objects_test runs hsx and its object stores against a real S3 server on a
// directory (versitygw), straight and through a proxy that cuts, delays, refuses and
// loses answers.
//
// HSX_BIN is the program, HSX_VERSITYGW the server's, HSX_PYTHON a Python with s3fs.
package objects_test

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hsx/internal/faultproxy"
	"hsx/internal/objstore"
)

const (
	keyID  = "AKIDEXAMPLEOFTESTS"
	secret = "SecretOfTestsThatNoErrorShows"
)

func env(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set, want it as `make objects` sets it", name)
	}
	return v
}

// startServer runs a server with the empty buckets "bucket" and "other" until the test
// ends, gives the test its credentials and no endpoint, and returns the server's URL.
func startServer(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close() // only its port is wanted
	dir := t.TempDir()
	for _, bucket := range []string{"bucket", "other"} {
		if err := os.Mkdir(filepath.Join(dir, bucket), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	cmd := exec.Command(env(t, "HSX_VERSITYGW"), "--quiet", "--keep-alive", "--port", addr, "--health", "/health", "posix", dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+keyID, "ROOT_SECRET_KEY="+secret)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // the log says why
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
	})
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": keyID, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "AWS_REQUEST_CHECKSUM_CALCULATION": "",
	} {
		t.Setenv(name, value)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if resp, err := http.Get("http://" + addr + "/health"); err == nil {
			_ = resp.Body.Close() // it is empty
			if resp.StatusCode == http.StatusOK {
				return "http://" + addr
			}
		}
		select {
		case <-ended:
			t.Fatalf("server ended: %v\n%s", cmd.ProcessState, log.String())
		default:
			if time.Now().After(deadline) {
				t.Fatal("server is not healthy after a minute")
			}
		}
	}
}

// between puts a proxy with faults before a server.
func between(t testing.TB, url string, choose faultproxy.Choose) (string, *faultproxy.Proxy) {
	t.Helper()
	p, err := faultproxy.New(url, choose)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.URL, p
}

func open(t testing.TB, url, endpoint string, opts objstore.Options) *objstore.Store {
	t.Helper()
	s, err := objstore.Open(t.Context(), url+"?endpoint="+endpoint, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func noise(n int) []byte {
	rng := rand.NewChaCha8([32]byte{1})
	p := make([]byte, n)
	_, _ = rng.Read(p) // never fails
	return p
}

func file(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantError demands an error that says all of this, and no secret.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q lacks %q", err, p)
		}
	}
	if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), keyID) {
		t.Errorf("error %q shows a credential", err)
	}
}
