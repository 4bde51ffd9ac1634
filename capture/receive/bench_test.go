package receive_test

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"hsx/capture/receive"
)

// BenchmarkReceive is the way of a body from a client on the loopback to its 201, with
// samples of 4 KiB to 256 MiB from one client and from several.
func BenchmarkReceive(b *testing.B) {
	for _, c := range []struct{ clients, tokens int }{{1, 1}, {1, 20000}, {1, 80000}, {4, 20000}, {64, 1}, {64, 1000}} {
		const hidden = 256
		b.Run(fmt.Sprintf("clients=%d/MiB=%d", c.clients, c.tokens*hidden*12>>20), func(b *testing.B) {
			s := start(b, b.TempDir(), receive.Options{CommitWindow: 100 * time.Millisecond})
			// One body under many ids of the same length.
			const id = "sample-0000000"
			body := encode(b, id, tensors(1, c.tokens, hidden))
			at := bytes.Index(body, []byte(id)) + len("sample-")
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			n := make(chan int)
			var wg sync.WaitGroup
			for range c.clients {
				wg.Go(func() {
					own := bytes.Clone(body)
					for i := range n {
						number := fmt.Sprintf("%07d", i)
						copy(own[at:], number)
						if code, text, err := s.try("sample-"+number, bytes.NewReader(own)); code != 201 {
							b.Errorf("got %d %s, error %v", code, text, err)
						}
					}
				})
			}
			i := 0
			for b.Loop() {
				n <- i
				i++
			}
			close(n)
			wg.Wait()
			st := s.r.Status()
			b.ReportMetric(st.MaxCommitSeconds*1000, "max-commit-ms")
			b.ReportMetric(float64(st.Samples)/float64(st.Commits), "samples/commit")
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapSys>>20), "heap-MiB")
		})
	}
}
