package shard

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/internal/mapped"
	"hsx/internal/zhuff"
)

const (
	// unitBlocks is how many blocks of a frame one goroutine codes at a time.
	unitBlocks = 4
	unitValues = unitBlocks * zhuff.BlockBytes
	// keptBytes is how much memory a packer keeps for each of the next batches.
	keptBytes = 128 << 20
	// worthBits is how many bits a byte may hold at most to be worth coding.
	worthBits = 7.6
)

// packer makes of the states of a batch what a compressed shard stores: the high and the
// low bytes of 16-bit values apart, and coded where they shrink. It works on one batch
// at a time, with all processors.
type packer struct {
	mem     [2][]byte // mapped: of it only what was filled is there; in turn
	workers []*packWorker
}

type packWorker struct {
	enc            zhuff.Encoder
	values, hi, lo []byte // one block
}

// packed is one state as a compressed shard stores it. A state of 32-bit values has one
// buffer, which is not filled in.
type packed struct {
	split  bool
	hi, lo buffer
}

// part is the high or the low bytes of a state.
type part struct {
	coded  bool
	dst    []byte   // of all units
	pieces [][]byte // one a unit, where it is coded
}

// job is one state while it is packed.
type job struct {
	rows   format.Rows
	n      int // values
	hi, lo part
}

// pack returns the states in their order, and adds them to hash if it is not nil. What it
// returns is valid until the call after the next. A fault of the mapped memory that the
// states lie in is an error.
func (p *packer) pack(states []format.Rows, hash *xxh3.Hasher) ([]packed, error) {
	jobs := make([]*job, len(states))
	var units []func(*packWorker)
	if hash != nil {
		units = append(units, func(*packWorker) {
			for _, r := range states {
				hashRows(hash, r)
			}
		})
	}
	room := 0
	err := mapped.Guard(func() error { // looking at the values may fault
		for k, r := range states {
			if r.DType.Size() != 2 {
				continue
			}
			j := &job{rows: r, n: r.N * r.Width}
			j.hi.coded, j.lo.coded = shrinks(r)
			jobs[k] = j
			room += 2 * area(j.n)
			count := (j.n + unitValues - 1) / unitValues
			j.hi.pieces, j.lo.pieces = make([][]byte, count), make([][]byte, count)
			for u := range count {
				units = append(units, func(w *packWorker) { w.pack(j, u) })
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := p.reserve(room); err != nil {
		return nil, err
	}
	free := p.mem[0]
	for _, j := range jobs {
		if j != nil {
			j.hi.dst, j.lo.dst, free = free[:area(j.n)], free[area(j.n):2*area(j.n)], free[2*area(j.n):]
		}
	}
	if err := p.run(units); err != nil {
		return nil, err
	}
	out := make([]packed, len(states))
	for k, j := range jobs {
		if j != nil {
			out[k] = packed{split: true, hi: j.hi.buffer(j.n), lo: j.lo.buffer(j.n)}
		}
	}
	return out, nil
}

// run has each unit done by some worker.
func (p *packer) run(units []func(*packWorker)) error {
	var next atomic.Int64
	var g errgroup.Group
	for i := range min(runtime.GOMAXPROCS(0), len(units)) {
		if i == len(p.workers) {
			p.workers = append(p.workers, &packWorker{
				values: make([]byte, 2*zhuff.BlockBytes), hi: make([]byte, zhuff.BlockBytes), lo: make([]byte, zhuff.BlockBytes)})
		}
		w := p.workers[i]
		g.Go(func() error {
			return mapped.Guard(func() error {
				for u := next.Add(1) - 1; u < int64(len(units)); u = next.Add(1) - 1 {
					units[u](w)
				}
				return nil
			})
		})
	}
	return g.Wait()
}

// area is the most that one half of n values takes, coded or not.
func area(n int) int {
	blocks := (n + zhuff.BlockBytes - 1) / zhuff.BlockBytes
	return n + blocks*zhuff.BlockBound(0)
}

// buffer is a part as it is stored: what Arrow calls a compressed buffer.
func (p *part) buffer(n int) buffer {
	if !p.coded {
		return buffer{kept: true, pieces: [][]byte{lengthPrefix(notCompressed), p.dst[:n]}}
	}
	head := zhuff.AppendHeader(lengthPrefix(int64(n)), n)
	return buffer{kept: true, pieces: append([][]byte{head}, p.pieces...)}
}

// pack does one unit of a state.
func (w *packWorker) pack(j *job, unit int) {
	hiOut, loOut := j.hi.unit(unit), j.lo.unit(unit)
	end := min((unit+1)*unitValues, j.n)
	for at := unit * unitValues; at < end; at += zhuff.BlockBytes {
		n := min(zhuff.BlockBytes, end-at)
		hi, lo := j.hi.target(w.hi, at, n), j.lo.target(w.lo, at, n)
		split(hi, lo, w.take(j.rows, at, n))
		last := at+n == j.n
		if j.hi.coded {
			hiOut = w.enc.AppendBlock(hiOut, hi, last)
		}
		if j.lo.coded {
			loOut = w.enc.AppendBlock(loOut, lo, last)
		}
	}
	j.hi.pieces[unit], j.lo.pieces[unit] = hiOut, loOut
}

// unit is where the blocks of a unit go.
func (p *part) unit(u int) []byte {
	if !p.coded {
		return nil
	}
	at := u * unitBlocks * zhuff.BlockBound(zhuff.BlockBytes)
	return p.dst[at:at]
}

// target is where n bytes of a part go before they are coded, or for good.
func (p *part) target(scratch []byte, at, n int) []byte {
	if p.coded {
		return scratch[:n]
	}
	return p.dst[at : at+n]
}

// take is n values of a state, in one piece.
func (w *packWorker) take(r format.Rows, at, n int) []byte {
	if whole, ok := r.Contiguous(); ok {
		return whole[2*at : 2*(at+n)]
	}
	out := w.values[:0]
	row, skip := at/r.Width, 2*(at%r.Width)
	for ; len(out) < 2*n; row++ {
		b := r.Row(row)[skip:]
		out = append(out, b[:min(len(b), 2*n-len(out))]...)
		skip = 0
	}
	return out
}

// shrinks reports, by a sample of a state's values, whether their high and their low
// bytes are worth coding.
func shrinks(r format.Rows) (hi, lo bool) {
	const rows, values = 64, 512
	var hiCount, loCount [256]int
	var hiBuf, loBuf [values]byte
	for i := range r.Spread(rows) {
		row := r.Row(i)
		row = row[:min(len(row), 2*values)]
		n := len(row) / 2
		split(hiBuf[:n], loBuf[:n], row)
		for k := range n {
			hiCount[hiBuf[k]]++
			loCount[loBuf[k]]++
		}
	}
	return entropy(&hiCount) <= worthBits, entropy(&loCount) <= worthBits
}

// reserve makes room for n bytes, beside what was made room for last. Memory that is
// mapped for it is not there before it is used, and what a batch of unusual size took is
// given back by the one after the next.
func (p *packer) reserve(n int) error {
	p.mem[0], p.mem[1] = p.mem[1], p.mem[0]
	mem := &p.mem[0]
	if n <= len(*mem) && (len(*mem) <= keptBytes || n > keptBytes) {
		return nil
	}
	if err := unmap(mem); err != nil || n == 0 {
		return err
	}
	var err error
	if *mem, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return fmt.Errorf("reserve %d bytes of memory: %w", n, err)
	}
	return nil
}

// close gives the memory back.
func (p *packer) close() error {
	if p == nil {
		return nil
	}
	return errors.Join(unmap(&p.mem[0]), unmap(&p.mem[1]))
}

func unmap(mem *[]byte) error {
	old := *mem
	if *mem = nil; old == nil {
		return nil
	}
	if err := unix.Munmap(old); err != nil {
		return fmt.Errorf("unmap memory: %w", err)
	}
	return nil
}
