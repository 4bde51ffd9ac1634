package main

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load is what one look at a receiver's process sees.
type load struct{ rss, heap, goroutines, files float64 }

// look reads the receiver's own metrics.
func (s *serving) look(t *testing.T) load {
	t.Helper()
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	series := map[string]float64{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok {
			series[name], _ = strconv.ParseFloat(value, 64) // of a comment it is nothing
		}
	}
	l := load{series["process_resident_memory_bytes"], series["go_memstats_heap_sys_bytes"], series["go_goroutines"], series["process_open_fds"]}
	if l.rss == 0 || l.heap == 0 || l.goroutines == 0 || l.files == 0 {
		t.Fatalf("metrics give %+v, want all of it", l)
	}
	return l
}

// middle is the median of one figure over looks.
func middle(looks []load, of func(load) float64) float64 {
	values := make([]float64, len(looks))
	for i, l := range looks {
		values[i] = of(l)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// TestServeSoak runs a receiver under clients that send samples of 1 KiB to 4 MiB, for
// SOAK (4 s without it): its memory, goroutines and files do not grow, and what it
// acknowledged is there once.
func TestServeSoak(t *testing.T) {
	t.Parallel()
	length, growth := 4*time.Second, 2.0 // a short run has hardly warmed up
	if text := os.Getenv("SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SOAK: %v", err)
		}
	}
	if length >= time.Minute {
		growth = 1.2
	}
	const clients, every = 6, 50 * time.Millisecond // each sends one in so long, so that the disk holds it all
	ds := filepath.Join(t.TempDir(), "ds")
	s := startServing(t, process(t, "serve", "--out", ds, "--listen", "127.0.0.1:0"))
	tokens := []int{40, 40, 4000, 400, 40, 400, 4000, 40}
	var next atomic.Int64
	var mu sync.Mutex
	var acknowledged []int
	var wg sync.WaitGroup
	begin := time.Now()
	for range clients {
		wg.Go(func() {
			for pace := time.NewTicker(every); time.Since(begin) < length; <-pace.C {
				n := int(next.Add(1))
				size := tokens[n%len(tokens)]
				if n%53 == 0 {
					size = 125000
				}
				id, body := sentLong(n, size)
				if code, text := postBody(s.url, id, body); code != http.StatusCreated {
					t.Errorf("sample %d: got %d %s, want 201", n, code, text)
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, n)
				mu.Unlock()
			}
		})
	}
	var looks []load
	for pace := time.NewTicker(length / 80); time.Since(begin) < length; <-pace.C {
		looks = append(looks, s.look(t))
	}
	wg.Wait()
	second, last := looks[len(looks)/4:len(looks)/2], looks[3*len(looks)/4:]
	rss := func(l load) float64 { return l.rss }
	before, after := middle(second, rss), middle(last, rss)
	t.Logf("%d samples in %s; second quarter and last: RSS %.0f and %.0f MiB, %v and %v goroutines, %v and %v files", len(acknowledged), length,
		before/(1<<20), after/(1<<20), middle(second, func(l load) float64 { return l.goroutines }), middle(last, func(l load) float64 { return l.goroutines }),
		middle(second, func(l load) float64 { return l.files }), middle(last, func(l load) float64 { return l.files }))
	if after > growth*before {
		t.Errorf("RSS grew from %.0f to %.0f bytes, want at most %.1f times as much", before, after, growth)
	}
	for what, of := range map[string]func(load) float64{"goroutines": func(l load) float64 { return l.goroutines }, "files": func(l load) float64 { return l.files }} {
		if a, b := middle(second, of), middle(last, of); b > a+clients {
			t.Errorf("%s grew from %v to %v", what, a, b)
		}
	}
	most := 0.0
	for _, l := range looks {
		most = max(most, l.heap)
	}
	if t.Logf("heap at most %.0f MiB", most/(1<<20)); most > 512<<20 {
		t.Errorf("heap has %.0f bytes, want at most 512 MiB", most)
	}
	s.quiet(t)
	s.end(t)
	checkServed(t, ds, acknowledged)
}
