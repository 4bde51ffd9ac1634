package shard

import (
	"math"
	"slices"

	"hsx/format"
)

// fingerprintRows is how many rows of a sample and state enter the fingerprint:
// enough to tell layers apart over a shard, too few to cost time.
const fingerprintRows = 8

// Fingerprint is what a shard's values of one state look like: mean and RMS over
// the channels of a row, averaged over evenly spaced rows of every sample (row 0
// left out when there are others), and the standard deviation of each between
// rows. A shard of other layers, or of another norm state, stands out by it.
type Fingerprint struct {
	Column    string  `json:"column"`
	Rows      int64   `json:"rows"`
	Mean      float64 `json:"mean"`
	MeanSD    float64 `json:"mean_sd"`
	RMS       float64 `json:"rms"`
	RMSSD     float64 `json:"rms_sd"`
	NonFinite int64   `json:"non_finite,omitempty"` // rows left out because they hold NaN or Inf
}

// moments accumulates rows of one state.
type moments struct {
	rows, nonFinite        int64
	mean, mean2, rms, rms2 float64   // sums and sums of squares
	values                 []float32 // scratch, one row
}

// add takes the sampled rows of one sample's state.
func (m *moments) add(r format.Rows) {
	m.values = slices.Grow(m.values[:0], r.Width)[:r.Width]
	for i := range r.Spread(fingerprintRows) {
		r.DType.Floats(m.values, r.Row(i))
		m.addRow(m.values)
	}
}

func (m *moments) addRow(row []float32) {
	var sum, squares float64
	for _, v := range row {
		x := float64(v)
		sum += x
		squares += x * x
	}
	n := float64(len(row))
	mean, rms := sum/n, math.Sqrt(squares/n)
	if math.IsNaN(rms) || math.IsInf(rms, 0) {
		m.nonFinite++
		return
	}
	m.rows++
	m.mean += mean
	m.mean2 += mean * mean
	m.rms += rms
	m.rms2 += rms * rms
}

// result is the fingerprint of all rows so far.
func (m *moments) result(column string) Fingerprint {
	f := Fingerprint{Column: column, Rows: m.rows, NonFinite: m.nonFinite}
	if m.rows == 0 {
		return f
	}
	n := float64(m.rows)
	f.Mean, f.RMS = m.mean/n, m.rms/n
	// Rounding can leave a tiny negative variance.
	f.MeanSD = math.Sqrt(max(0, m.mean2/n-f.Mean*f.Mean))
	f.RMSSD = math.Sqrt(max(0, m.rms2/n-f.RMS*f.RMS))
	return f
}

func (m *moments) merge(o moments) {
	m.rows += o.rows
	m.nonFinite += o.nonFinite
	m.mean += o.mean
	m.mean2 += o.mean2
	m.rms += o.rms
	m.rms2 += o.rms2
}
