package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/flight"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// sentBatch is samples as [sent] makes them, in one record batch.
func sentBatch(numbers []int) arrow.Record {
	const tokens, hidden = 40, 16
	state := arrow.Field{
		Name: "layer_2", Type: arrow.ListOf(arrow.FixedSizeListOf(hidden, arrow.PrimitiveTypes.Uint16)),
		Metadata: arrow.NewMetadata([]string{"hsx.dtype"}, []string{"bfloat16"}),
	}
	sc := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.BinaryTypes.String}, {Name: "input_ids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)}, state,
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	defer b.Release()
	ids, states := b.Field(1).(*array.ListBuilder), b.Field(2).(*array.ListBuilder)
	rows := states.ValueBuilder().(*array.FixedSizeListBuilder)
	for _, n := range numbers {
		b.Field(0).(*array.StringBuilder).Append(fmt.Sprintf("run/%d", n))
		ids.Append(true)
		states.Append(true)
		for t := range tokens {
			ids.ValueBuilder().(*array.Int32Builder).Append(int32(n + t))
			rows.Append(true)
			for range hidden {
				rows.ValueBuilder().(*array.Uint16Builder).Append(uint16(0x3f80 + n%64))
			}
		}
	}
	return b.NewRecord()
}

// putBatches sends batches in one stream, all before the first answer, and returns the
// samples that were acknowledged.
func putBatches(ctx context.Context, addr string, batches [][]int) (acknowledged []int, err error) {
	c, err := flight.NewClientWithMiddleware(addr, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // answers that were read stay true
	stream, err := c.DoPut(ctx)
	if err != nil {
		return nil, err
	}
	w := flight.NewRecordWriter(stream, ipc.WithSchema(sentBatch(nil).Schema()))
	w.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"run"}})
	for _, numbers := range batches {
		if w.Write(sentBatch(numbers)) != nil {
			break // Recv says why
		}
	}
	_ = stream.CloseSend() // likewise
	for n := 0; ; n++ {
		res, err := stream.Recv()
		if err != nil {
			return acknowledged, err
		}
		var doc struct {
			Samples []struct{ ID, Outcome string }
		}
		if err := json.Unmarshal(res.AppMetadata, &doc); err != nil {
			return acknowledged, err
		}
		for i, s := range doc.Samples {
			if s.ID != fmt.Sprintf("run/%d", batches[n][i]) {
				return acknowledged, fmt.Errorf("batch %d answers for %s, want %d", n, s.ID, batches[n][i])
			}
			if s.Outcome == "created" || s.Outcome == "exists" {
				acknowledged = append(acknowledged, batches[n][i])
			}
		}
	}
}

// TestServeFlightKill kills the receiver at any instant within streams: what was
// acknowledged is there, once, and what was not is sent again.
func TestServeFlightKill(t *testing.T) {
	t.Parallel()
	const clients, each, kills = 4, 60, 8
	ds := filepath.Join(t.TempDir(), "ds")
	args := []string{"serve", "--out", ds, "--listen", "127.0.0.1:0", "--flight", "127.0.0.1:0", "--commit-window", "3ms"}
	var addr atomic.Value
	s := startServing(t, process(t, args...))
	addr.Store(s.grpc)
	var got atomic.Int64
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			left := map[int]bool{}
			for i := range each {
				left[c*each+i] = true
			}
			for end := time.Now().Add(2 * time.Minute); len(left) > 0; {
				var batches [][]int
				for n := range left { // in any order, three a batch
					if k := len(batches); k == 0 || len(batches[k-1]) == 3 {
						batches = append(batches, nil)
					}
					batches[len(batches)-1] = append(batches[len(batches)-1], n)
				}
				acknowledged, err := putBatches(context.Background(), addr.Load().(string), batches)
				for _, n := range acknowledged {
					delete(left, n)
				}
				got.Add(int64(len(acknowledged)))
				if time.Now().After(end) {
					t.Errorf("client %d has %d samples left: %v", c, len(left), err)
					return
				}
			}
		})
	}
	s, killed := killServing(t, s, args, kills, 6, 20*time.Millisecond, func() bool { return got.Load() < clients*each }, &got, func(s *serving) { addr.Store(s.grpc) })
	wg.Wait()
	res, err := http.Get(s.url + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	var status struct {
		Flight string
		Rows   int
	}
	err = json.NewDecoder(res.Body).Decode(&status)
	_ = res.Body.Close() // it was read
	if err != nil || status.Flight != "grpc://"+s.grpc || status.Rows != clients*each {
		t.Errorf("status is %+v (error %v), want the address of Flight and %d rows", status, err, clients*each)
	}
	s.end(t)
	t.Logf("%d kills", killed)
	if killed < 2 {
		t.Errorf("clients were done after %d kills, want some more", killed)
	}
	all := make([]int, clients*each)
	for i := range all {
		all[i] = i
	}
	checkServed(t, ds, all)
	if left, err := filepath.Glob(ds + ".spool/*"); err != nil || len(left) > 0 {
		t.Errorf("spool has %v (error %v), want nothing", left, err)
	}
}
