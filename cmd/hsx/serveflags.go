package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hsx/capture/receive"
)

// serveFlags are those of hsx serve that say how it listens and what it bounds.
type serveFlags struct {
	listen, flight, spool, spoolBytes, maxBody, commitBytes, minRate string
	tokenEnv, tokenFile, tlsCert, tlsKey, clientCA                   string
	window, bodyTimeout, stopTimeout                                 time.Duration
	maxConns                                                         int
	allowNonFinite                                                   bool
}

func (o *serveFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8600", "address to take samples at; off loopback it needs a token")
	f.StringVar(&o.flight, "flight", "", "address to take record batches at too, over Arrow Flight (DoPut)")
	f.StringVar(&o.spool, "spool", "", "directory for bodies that are on their way (default: DS.spool beside the dataset)")
	f.StringVar(&o.spoolBytes, "spool-bytes", "8GiB", "bodies on their way at a time; more is answered with 429")
	f.StringVar(&o.maxBody, "max-body", "4GiB", "one body, or the body of one record batch; more is answered with 413")
	f.StringVar(&o.commitBytes, "commit-bytes", "16MiB", "commit at once when so much waits and nothing else is on its way")
	f.DurationVar(&o.window, "commit-window", 100*time.Millisecond, "wait so long for the samples of other clients")
	f.BoolVar(&o.allowNonFinite, "allow-nonfinite", false, "take states with infinities and NaNs")
	f.StringVar(&o.tokenEnv, "token-env", "", "environment variable that holds the bearer token of clients")
	f.StringVar(&o.tokenFile, "token-file", "", "file that holds it")
	f.StringVar(&o.tlsCert, "tls-cert", "", "certificate chain (PEM): speak TLS")
	f.StringVar(&o.tlsKey, "tls-key", "", "its private key (PEM)")
	f.StringVar(&o.clientCA, "client-ca", "", "authorities (PEM) that clients need a certificate of")
	f.IntVar(&o.maxConns, "max-conns", 256, "connections at a time; more wait")
	f.DurationVar(&o.bodyTimeout, "body-timeout", 30*time.Second, "without a byte of a body, and before --min-rate counts")
	f.StringVar(&o.minRate, "min-rate", "1MiB", "bytes a second that a body must come at on average")
	f.DurationVar(&o.stopTimeout, "stop-timeout", 30*time.Second, "at the end, for bodies that are on their way")
}

// options checks the flags and translates them.
func (o *serveFlags) options(out string) (receive.Options, error) {
	r := receive.Options{
		Spool: o.spool, CommitWindow: o.window, AllowNonFinite: o.allowNonFinite,
		MaxConns: o.maxConns, BodyTimeout: o.bodyTimeout, StopTimeout: o.stopTimeout,
	}
	if r.Spool == "" {
		r.Spool = strings.TrimRight(out, "/") + ".spool"
	}
	for _, f := range []struct {
		name, text string
		into       *int64
	}{
		{"--spool-bytes", o.spoolBytes, &r.SpoolBytes}, {"--max-body", o.maxBody, &r.MaxBody},
		{"--commit-bytes", o.commitBytes, &r.CommitBytes}, {"--min-rate", o.minRate, &r.MinRate},
	} {
		var err error
		if *f.into, err = parseSize(f.text); err != nil {
			return r, usagef("%s: %w", f.name, err)
		}
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"commit-window", o.window}, {"body-timeout", o.bodyTimeout}, {"stop-timeout", o.stopTimeout}} {
		if f.d <= 0 {
			return r, usagef("--%s: %s is not a time to wait, want more than 0s", f.name, f.d)
		}
	}
	if o.maxConns < 1 {
		return r, usagef("--max-conns: %d is too few, want at least 1", o.maxConns)
	}
	if r.MaxBody > r.SpoolBytes {
		return r, usagef("--max-body: %s is more than --spool-bytes %s", o.maxBody, o.spoolBytes)
	}
	var err error
	if r.Token, err = o.token(); err != nil {
		return r, err
	}
	for _, f := range []struct{ name, addr string }{{"--listen", o.listen}, {"--flight", o.flight}} {
		if f.name == "--flight" && f.addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(f.addr); err != nil {
			return r, usagef("%s: %q is not an address, want HOST:PORT or :PORT", f.name, f.addr)
		}
		if r.Token == "" && !loopback(f.addr) {
			return r, usagef("%s: %s can be reached from other machines; pass --token-env or --token-file", f.name, f.addr)
		}
	}
	r.TLS, err = o.tls()
	return r, err
}

// token is "" when no flag names one.
func (o *serveFlags) token() (string, error) {
	switch {
	case o.tokenEnv != "" && o.tokenFile != "":
		return "", usagef("--token-env and --token-file: pass one of them")
	case o.tokenEnv != "":
		token := strings.TrimSpace(os.Getenv(o.tokenEnv))
		if token == "" {
			return "", usagef("--token-env: the variable %s is not set or empty", printableName(o.tokenEnv))
		}
		return token, nil
	case o.tokenFile != "":
		token, err := secretFile("--token-file", o.tokenFile)
		if err == nil && token == "" {
			err = usagef("--token-file: %s is empty", o.tokenFile)
		}
		return token, err
	}
	return "", nil
}

// loopback reports whether an address can be reached from this machine alone.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// open listens. The second listener is nil without --flight.
func (o *serveFlags) open() (l, flight net.Listener, err error) {
	if l, err = net.Listen("tcp", o.listen); err != nil {
		return nil, nil, fmt.Errorf("--listen: %w", err)
	}
	if o.flight == "" {
		return l, nil, nil
	}
	if flight, err = net.Listen("tcp", o.flight); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--flight: %w", err), l.Close())
	}
	return l, flight, nil
}
