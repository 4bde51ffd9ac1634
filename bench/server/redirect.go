package server

import (
	"fmt"
	"net/http"
	"net/url"
)

// redirectError is a redirect that is not followed.
type redirectError struct{ text string }

func (e *redirectError) Error() string { return e.text }

// checkRedirect follows a redirect on the same host, and from http to https there.
// Another host would get the key, another method would ask for something else.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	to := redact(next.URL.String())
	upgrade := last.URL.Scheme == "http" && next.URL.Scheme == "https"
	switch {
	case len(via) > 5:
		return &redirectError{"redirected more than 5 times, last to " + to}
	case next.URL.Hostname() != last.URL.Hostname() || !upgrade && origin(next.URL) != origin(last.URL):
		return &redirectError{fmt.Sprintf("redirected to another server, which gets no key and no prompt; if it is yours, use URL %s", to)}
	case next.Method != first.Method:
		return &redirectError{fmt.Sprintf("redirected with status %d, which makes a %s of the %s; use URL %s", next.Response.StatusCode, next.Method, first.Method, to)}
	}
	return nil
}

// origin is scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = u.Scheme
	}
	return u.Scheme + "//" + u.Hostname() + ":" + port
}
