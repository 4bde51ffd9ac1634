package flight_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/capture/receive"
	"hsx/format"
)

// TestRoundTrip sends the record batches of a dataset, of each dtype and of several
// lengths, once and again.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, dtype := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		for _, hidden := range []int{1, 7, 64, 65} {
			t.Run(dtype.String(), func(t *testing.T) {
				t.Parallel()
				s := start(t, receive.Options{})
				want := samples(0, 12, 5, hidden, dtype)
				msgs, c := messages(t, records(t, want)), s.dial(t)
				for _, word := range []string{"created", "exists"} {
					got, err := put(t.Context(), c, msgs)
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(repeat(word, 12), outcomes(got)); diff != "" {
						t.Errorf("outcomes (-want +got):\n%s\n%v", diff, got)
					}
				}
				if err := s.stop(); err != nil {
					t.Fatal(err)
				}
				s.check(t, want)
			})
		}
	}
}
