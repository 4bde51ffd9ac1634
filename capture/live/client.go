package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The most that is read of an answer, in bytes. SGLang's has every number as text.
const (
	maxDocument = 16 << 20
	maxAnswer   = 256 << 20
	maxStates   = 2 << 30
)

// client speaks to one server.
type client struct {
	opt Options
}

// passing is a failure that another try may not have.
type passing struct {
	err  error
	wait time.Duration // that the server asked for
}

func (e *passing) Error() string { return e.err.Error() }

func (e *passing) Unwrap() error { return e.err }

// do sends one request and reads its answer, up to limit bytes. What is worth another
// try is a *passing.
func (c *client) do(ctx context.Context, method, path string, body any, limit int64) ([]byte, error) {
	patience := c.opt.Timeout
	if method == http.MethodGet { // nothing is computed for it
		patience = min(patience, 30*time.Second)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.opt.URL, "/")+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.opt.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.opt.Key)
	}
	resp, err := c.opt.Client.Do(req)
	if err != nil {
		return nil, &passing{err: err}
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or will not be
	answer, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, &passing{err: fmt.Errorf("read the answer to %s: %w", path, err)}
	case int64(len(answer)) > limit:
		return nil, fmt.Errorf("the answer to %s is longer than %d bytes", path, limit)
	case resp.StatusCode == http.StatusOK:
		return answer, nil
	}
	err = fmt.Errorf("%s answered %d: %.300q", path, resp.StatusCode, answer)
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout || resp.StatusCode >= 500 {
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date, or none, is no wait
		return nil, &passing{err: err, wait: time.Duration(min(max(seconds, 0), 60)) * time.Second}
	}
	return nil, err
}

// get reads a document into v and reports whether there was one.
func (c *client) get(ctx context.Context, path string, v any) bool {
	data, err := c.do(ctx, http.MethodGet, path, nil, maxDocument)
	return err == nil && json.Unmarshal(data, v) == nil
}

// alive asks whether the server would take another request.
func (c *client) alive(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, "/health", nil, maxDocument)
	return err
}
