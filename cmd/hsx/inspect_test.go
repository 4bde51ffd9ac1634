package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/shard"
)

func TestFingerprintLines(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		f    shard.Fingerprint
		want []string
	}{
		"finite":      {shard.Fingerprint{Rows: 8, RMS: 2, RMSSD: 0.5, Mean: -1, MeanSD: 0.25}, []string{"RMS 2 ± 0.5, mean -1 ± 0.25"}},
		"some not":    {shard.Fingerprint{Rows: 7, NonFinite: 1, RMS: 2}, []string{"RMS 2 ± 0, mean 0 ± 0", "1 of 8 sampled rows not finite"}},
		"none finite": {shard.Fingerprint{NonFinite: 1}, []string{"1 of 1 sampled row not finite"}},
	} {
		if diff := cmp.Diff(tc.want, fingerprintLines(tc.f)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
