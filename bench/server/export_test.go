package server

import (
	"context"
	"net"
	"net/http"
)

// Use is what Probe does at its end.
func (c *Client) Use(info *Info) { c.use(info) }

// Get is what preflight and counters read with.
func (c *Client) Get(ctx context.Context, url string, limit int64) ([]byte, int, error) {
	return c.get(ctx, url, limit)
}

// DialWith replaces the network.
func (c *Client) DialWith(dial func() (net.Conn, error)) {
	c.http.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return dial() }
}
