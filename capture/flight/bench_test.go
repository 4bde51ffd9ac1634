package flight_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/apache/arrow/go/v15/arrow/flight"

	"hsx/capture/receive"
	"hsx/format"
)

// BenchmarkWays is one client on the loopback that sends one sample after the other and
// waits for each to be durable: over HTTP, over Flight with a client that costs as little
// (HTTP/2 of net/http), and over Flight with Arrow's own client, which copies each batch
// several times. Of Flight also without waiting.
func BenchmarkWays(b *testing.B) {
	for _, tokens := range []int{1000, 20000, 80000} {
		const hidden = 256
		all := samples(0, 1, tokens, hidden, format.BFloat16)
		all[0].ID = "sample-0000000"
		msgs := messages(b, records(b, all))
		size := all[0].Bytes()
		body, err := io.ReadAll(safe(b, all[0]))
		if err != nil {
			b.Fatal(err)
		}
		number := func(in []byte, i int) []byte { // one body under many ids of the same length
			const before = "sample-"
			copy(in[bytes.Index(in, []byte(before))+len(before):], fmt.Sprintf("%07d", i))
			return in
		}
		run := func(way string, f func(b *testing.B, s *server)) {
			b.Run(fmt.Sprintf("%s/MiB=%d", way, size>>20), func(b *testing.B) {
				s := start(b, receive.Options{CommitWindow: 100 * time.Millisecond})
				b.SetBytes(size)
				f(b, s)
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapSys>>20), "heap-MiB") // of client and server
			})
		}
		run("http", func(b *testing.B, s *server) {
			for i := 0; b.Loop(); i++ {
				id := fmt.Sprintf("sample-%07d", i)
				if code, err := s.post(id, bytes.NewReader(number(body, i))); code != 201 {
					b.Fatalf("got %d, error %v", code, err)
				}
			}
		})
		// The digest is of ids and states: it holds for every id.
		for _, ahead := range []int{1, 4} {
			run(fmt.Sprintf("flight-raw-%d", ahead), func(b *testing.B, s *server) {
				pr, pw := io.Pipe()
				res := make(chan io.ReadCloser, 1)
				go func() {
					r, err := s.raw(b, pr) //nolint:bodyclose // it ends with the request
					if err != nil {
						b.Error(err)
					}
					res <- r.Body
				}()
				write := func(p []byte) {
					if _, err := pw.Write(p); err != nil {
						b.Fatal(err)
					}
				}
				write(wire(b, msgs[0]))
				in := <-res
				batch := wire(b, msgs[1])
				waiting := 0
				answer := func() {
					var head [5]byte
					_, err := io.ReadFull(in, head[:])
					doc := make([]byte, binary.BigEndian.Uint32(head[1:]))
					if _, derr := io.ReadFull(in, doc); err != nil || derr != nil || !bytes.Contains(doc, []byte(`"created"`)) {
						b.Fatalf("got %q, error %v", doc, errors.Join(err, derr))
					}
					waiting--
				}
				for i := 0; b.Loop(); i++ {
					write(number(batch, i))
					if waiting++; waiting == ahead {
						answer()
					}
				}
				for waiting > 0 {
					answer()
				}
				_ = pw.Close() // in memory
			})
		}
		run("flight-arrow-1", func(b *testing.B, s *server) {
			stream, err := s.dial(b).DoPut(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if err := stream.Send(msgs[0]); err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				number(msgs[1].DataBody, i)
				err := stream.Send(&flight.FlightData{DataHeader: msgs[1].DataHeader, DataBody: msgs[1].DataBody})
				res, rerr := stream.Recv()
				if err != nil || rerr != nil || !bytes.Contains(res.AppMetadata, []byte(`"created"`)) {
					b.Fatalf("got %v, error %v", res, errors.Join(err, rerr))
				}
			}
		})
	}
}
