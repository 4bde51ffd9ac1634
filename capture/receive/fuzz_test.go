package receive_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"hsx/capture/receive"
	"hsx/format"
)

// checking is a store that wants of every sample what a dataset needs.
type checking struct{ tb testing.TB }

func (c checking) Put(_ context.Context, s *format.Sample) error {
	if err := s.Check(); err != nil {
		c.tb.Errorf("sample that was put: %v", err)
	}
	if s.ID != "fuzz" || len(s.Tokens) == 0 || !s.Last {
		c.tb.Errorf("sample is %q with %d tokens, last %t; want fuzz with some, last", s.ID, len(s.Tokens), s.Last)
	}
	for _, h := range s.Hidden {
		for t := range h.Rows.N {
			for i := range h.Rows.Width {
				size := h.Rows.DType.Size()
				v := h.Rows.Row(t)[i*size : (i+1)*size]
				high := uint16(v[size-1])<<8 | uint16(v[size-2])
				exponent := uint16(0x7f80)
				if h.Rows.DType == format.Float16 {
					exponent = 0x7c00
				}
				if high&exponent == exponent {
					c.tb.Errorf("%s has the value %x, want only finite ones", h.State, v)
				}
			}
		}
	}
	return nil
}

func (checking) Compare(context.Context, *format.Sample) (known, same bool, err error) {
	return false, false, nil
}

func (checking) Reject(format.Rejection) error { return nil }

func (checking) Compact(context.Context) error { return nil }

func (checking) Commit(context.Context) error { return nil }

// FuzzBody sends bodies through the handler: each is taken, or refused with a reason.
func FuzzBody(f *testing.F) {
	good := small(f, "fuzz", 1)
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(bytes.Replace(good, []byte("F32"), []byte("F16"), 1))
	f.Add([]byte{})
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add(encode(f, "other", tensors(1, 2, 2)))
	half := tensors(1, 3, 5)
	for _, t := range half[1:4] {
		t.DType, t.Data = format.BFloat16, t.Data[:len(t.Data)/2]
	}
	f.Add(encode(f, "fuzz", half))
	s := startStore(f, f.TempDir(), checking{f}, receive.Options{MaxBody: 1 << 16, CommitWindow: time.Microsecond}, func() error { return nil })
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		s.r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/samples/fuzz", bytes.NewReader(body)))
		var said struct {
			Durable bool
			Error   string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil {
			t.Fatalf("answer is %q: %v", w.Body, err)
		}
		switch {
		case w.Code == 201 && said.Durable:
		case (w.Code == 422 || w.Code == 413) && said.Error != "":
		default:
			t.Errorf("got %d %s, want 201, or 413 or 422 with a reason", w.Code, w.Body)
		}
	})
}
