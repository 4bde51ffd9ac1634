package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"hsx/bench"
	"hsx/bench/server"
)

// reachFlags say how a server is reached.
type reachFlags struct {
	metrics, baselineMetrics, headers []string
	api, model, baselineModel         string
	keyEnv, keyFile, caCert, log      string
	insecure                          bool
	timeout, idle                     time.Duration
	retries                           int
}

func (r *reachFlags) add(f *pflag.FlagSet) {
	f.StringArrayVar(&r.metrics, "metrics-url", nil, "where the counters of --url are, when not there (repeatable: they are added up)")
	f.StringArrayVar(&r.baselineMetrics, "baseline-metrics-url", nil, "the same for --baseline-url")
	f.StringVar(&r.api, "api", "auto", "the route of requests: auto, chat, completions or sglang")
	f.StringVar(&r.model, "model", "", "the model's name at the server (default: the first that it lists)")
	f.StringVar(&r.baselineModel, "baseline-model", "", "the same at --baseline-url (default: --model)")
	f.StringArrayVar(&r.headers, "header", nil, "'Name: value' of every request (repeatable)")
	f.StringVar(&r.keyEnv, "api-key-env", "", "environment variable that holds the bearer token")
	f.StringVar(&r.keyFile, "api-key-file", "", "file that holds the bearer token")
	f.StringVar(&r.caCert, "ca-cert", "", "PEM file of certificates that are trusted beside the system's")
	f.BoolVar(&r.insecure, "insecure", false, "do not verify certificates; the report says so")
	f.DurationVar(&r.timeout, "timeout", 30*time.Minute, "longest time of one request")
	f.DurationVar(&r.idle, "idle-timeout", 2*time.Minute, "longest silence within a request")
	f.IntVar(&r.retries, "retries", 3, "times a request is tried again after 429, 5xx and refused connections, outside its latency")
	f.StringVar(&r.log, "server-log", "", "the log of an SGLang server: the last resort for its accept length")
}

// check finds what no client can be made of, before anything is written or sent.
func (r *reachFlags) check(p bench.Plan) error {
	if err := oneOf("--api", r.api, apis()); err != nil {
		return err
	}
	if r.timeout <= 0 || r.idle <= 0 || r.retries < 0 {
		return usagef("--timeout %s, --idle-timeout %s, --retries %d: want times above 0, and no negative number", r.timeout, r.idle, r.retries)
	}
	for _, arm := range p.Arms {
		c, err := r.client(p, arm)
		var file *fs.PathError
		var usage *usageError
		switch {
		case err == nil:
			c.Close()
		case errors.As(err, &file) || errors.As(err, &usage):
			return err
		default:
			return usagef("%s: %w", arm.Name, err)
		}
	}
	return nil
}

// apis are the values of --api.
func apis() []string {
	return []string{string(server.APIAuto), string(server.APIChat), string(server.APICompletions), string(server.APISGLang)}
}

// dial opens the way to the servers of a plan.
func (r *reachFlags) dial(p bench.Plan) func(context.Context, bench.Arm) (*bench.Link, error) {
	return func(_ context.Context, arm bench.Arm) (*bench.Link, error) {
		c, err := r.client(p, arm)
		if err != nil {
			return nil, err
		}
		return &bench.Link{Target: c, Meter: c, Close: c.Close}, nil
	}
}

func (r *reachFlags) client(p bench.Plan, arm bench.Arm) (*server.Client, error) {
	o, err := r.options(arm)
	if err != nil {
		return nil, err
	}
	for _, l := range p.Levels {
		if o.Connections = max(o.Connections, l.Concurrency); l.Rate != 0 {
			o.Connections = max(o.Connections, 256)
		}
	}
	return server.New(o)
}

func (r *reachFlags) options(arm bench.Arm) (server.Options, error) {
	o := server.Options{
		URL: arm.URL, API: server.API(r.api), Model: r.model, MetricsURLs: r.metrics, LogFile: r.log, CACert: r.caCert, Insecure: r.insecure,
		Timeout: r.timeout, IdleTimeout: r.idle, Retries: r.retries,
	}
	if r.retries == 0 {
		o.Retries = -1
	}
	if arm.Role == bench.Baseline {
		o.MetricsURLs, o.LogFile = r.baselineMetrics, ""
		if r.baselineModel != "" {
			o.Model = r.baselineModel
		}
	}
	for _, h := range r.headers {
		name, value, ok := strings.Cut(h, ":")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t\r\n") || strings.ContainsAny(value, "\r\n") {
			return o, usagef("--header: want 'Name: value', and the value is not shown here")
		}
		if o.Header == nil {
			o.Header = http.Header{}
		}
		o.Header.Add(name, strings.TrimSpace(value))
	}
	var err error
	o.Key, err = r.key()
	return o, err
}

func (r *reachFlags) key() (string, error) {
	switch {
	case r.keyEnv != "" && r.keyFile != "":
		return "", usagef("--api-key-env, --api-key-file: want one of them")
	case r.keyEnv != "":
		key := strings.TrimSpace(os.Getenv(r.keyEnv))
		if key == "" {
			return "", usagef("--api-key-env %s: the variable is empty; it is its name that is wanted, not the key", printableName(r.keyEnv))
		}
		return key, nil
	case r.keyFile != "":
		key, err := secretFile("--api-key-file", r.keyFile)
		if err == nil && key == "" {
			err = noSingleLine("--api-key-file", r.keyFile)
		}
		return key, err
	}
	return "", nil
}

// secretFile is the one line of a file that holds a secret, "" when it is empty. Not more
// is read than a secret can have: what a flag names may have no end.
func secretFile(flag, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", flag, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("read %s: %w", flag, err)
	}
	secret := strings.TrimSpace(string(data))
	if strings.ContainsAny(secret, "\r\n") {
		return "", noSingleLine(flag, path)
	}
	return secret, nil
}

func noSingleLine(flag, path string) error { return usagef("%s %s: holds no single line", flag, path) }

// printableName shows the name of a variable, but nothing that looks like a key given
// in its place.
func printableName(name string) string {
	for _, r := range name {
		if r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') {
			return "(not shown)"
		}
	}
	return name
}
