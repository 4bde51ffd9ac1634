package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Client speaks to one server. Its methods may be called at once from many goroutines.
type Client struct {
	root    *url.URL // without trailing slash and /v1
	opt     Options
	secrets []string // never printed, whoever repeats them
	http    *http.Client
	learned atomic.Pointer[Info]
	renamed atomic.Bool // the server wants max_completion_tokens
	meter   meter       // what counters remember between two reads
}

// New returns a client of the server at opt.URL. It checks the URLs and reads
// opt.CACert, and sends nothing yet.
func New(opt Options) (*Client, error) {
	root, err := parseURL(opt.URL)
	if err != nil {
		return nil, err
	}
	if root.RawQuery != "" || root.Fragment != "" {
		return nil, fmt.Errorf("url %q: has a query or a fragment, want the root of a server", redact(opt.URL))
	}
	for _, route := range []string{"/completions", "/generate", "/models", "/metrics", "/health"} {
		if strings.HasSuffix(strings.TrimRight(root.Path, "/"), route) {
			return nil, fmt.Errorf("url %q: ends in the route %s, want the root of a server", redact(opt.URL), route)
		}
	}
	c := &Client{opt: opt, root: root, secrets: []string{opt.Key}}
	for name, values := range opt.Header {
		for _, value := range values {
			if secretName(name, value) || strings.EqualFold(name, "Cookie") {
				c.secrets = append(c.secrets, value[strings.LastIndexByte(value, ' ')+1:])
			}
		}
	}
	for _, raw := range append([]string{opt.URL}, opt.MetricsURLs...) {
		u, err := parseURL(raw)
		if err != nil {
			return nil, err
		}
		password, _ := u.User.Password()
		c.secrets = append(c.secrets, password)
	}
	switch opt.API {
	case "", APIAuto, APIChat, APICompletions, APISGLang:
	default:
		return nil, fmt.Errorf("api %q is unknown, want auto, chat, completions or sglang", opt.API)
	}
	root.Path = strings.TrimSuffix(strings.TrimRight(root.Path, "/"), "/v1")
	root.RawPath = ""
	c.opt.Timeout = orDefault(opt.Timeout, 30*time.Minute)
	c.opt.IdleTimeout = orDefault(opt.IdleTimeout, 2*time.Minute)
	if opt.Retries == 0 {
		c.opt.Retries = 3
	}
	transport, err := newTransport(opt)
	if err != nil {
		return nil, err
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: checkRedirect}
	return c, nil
}

func orDefault(d, byDefault time.Duration) time.Duration {
	if d <= 0 {
		return byDefault
	}
	return d
}

// newTransport keeps to HTTP/1.1: over HTTP/2 all streams share one connection and
// wait for each other's lost packets, which would be measured as the server's.
func newTransport(opt Options) (*http.Transport, error) {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // a gzip writer holds chunks back
	t.MaxIdleConnsPerHost = max(opt.Connections, 2)
	t.MaxIdleConns = 0
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: opt.Insecure}
	if opt.CACert == "" {
		return t, nil
	}
	pemBytes, err := os.ReadFile(opt.CACert)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pemBytes) {
		seen := "no PEM block"
		if block, _ := pem.Decode(pemBytes); block != nil {
			seen = fmt.Sprintf("a PEM block %q", block.Type)
		}
		return nil, fmt.Errorf("read certificates %q: has %s, want at least one CERTIFICATE", opt.CACert, seen)
	}
	t.TLSClientConfig.RootCAs = pool
	return t, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// String is the server's URL without its password.
func (c *Client) String() string { return redact(c.root.String()) }

// use tells the client what preflight learned. Before, it asks for nothing that not
// every server with the OpenAI routes takes.
func (c *Client) use(info *Info) {
	known := *info
	c.learned.Store(&known)
}

// info is what preflight learned so far, never nil.
func (c *Client) info() *Info {
	if known := c.learned.Load(); known != nil {
		return known
	}
	return &Info{API: c.opt.API, Model: c.opt.Model, Engine: OpenAI}
}

// at is the URL of a path on the server, with the user for [Client.request].
func (c *Client) at(path string) string {
	u := *c.root
	u.Path += path
	return u.String()
}

// get reads a small document with the client's headers. A status is no error. More
// than limit bytes, or more than 15 seconds, is one.
func (c *Client) get(ctx context.Context, url string, limit int64) (body []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req, err := c.request(ctx, http.MethodGet, url, "")
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		status := 0
		if resp != nil { // a redirect that is not followed
			status = resp.StatusCode
		}
		return nil, status, c.sentence(req, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read as far as it matters
	got, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, resp.StatusCode, c.sentence(req, err)
	}
	if int64(len(got)) > limit {
		return nil, resp.StatusCode, fmt.Errorf("GET %s: answer is longer than %d bytes", redact(url), limit)
	}
	return got, resp.StatusCode, nil
}

// request makes a request with the client's headers. The URL's user becomes a header,
// so that no error can name it; the key comes before it, and before a header.
func (c *Client) request(ctx context.Context, method, url, body string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, redact(url), errors.Unwrap(err))
	}
	for name, values := range c.opt.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Host = req.Header.Get("Host") // net/http takes it from there; empty is the URL's
	if user := req.URL.User; user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
		req.URL.User = nil
	}
	if c.opt.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.opt.Key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// sentence is a transport's error without the layers that say nothing to a user, and
// without secrets.
func (c *Client) sentence(req *http.Request, err error) error {
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return &plainError{req.Method + " " + redact(req.URL.String()) + ": " + c.scrub(err.Error()), err}
}

// plainError has a text of its own, and the cause for errors.Is and errors.As.
type plainError struct {
	text  string
	cause error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.cause }

// scrub takes the client's secrets out of a text: a server may repeat a key that it
// refuses.
func (c *Client) scrub(text string) string {
	for _, secret := range c.secrets {
		if len(secret) > 3 { // less is no secret, and part of many words
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil && strings.Contains(raw, "@"):
		return nil, errors.New("url: does not parse; is a special character of the password not percent-encoded?")
	case err != nil && !strings.Contains(raw, "://"): // an address and a port
		return nil, fmt.Errorf("url %q: want http:// or https://", raw)
	case err != nil:
		return nil, fmt.Errorf("url %q: %w", raw, errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("url %q: want http:// or https://", redact(raw))
	case u.Hostname() == "":
		return nil, fmt.Errorf("url %q: has no host", redact(raw))
	}
	return u, nil
}

// redact is a URL without user and query, either of which may be a secret.
func redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
