package main

import (
	"fmt"

	"hsx/format"
	"hsx/format/producer"
	"hsx/shard"
	"hsx/validate"
)

// sameCapture refuses flags that contradict what the named dataset holds, also when all
// of the inputs are in it already and nothing would be read.
func sameCapture(name string, m *shard.Manifest, f producer.Facts) error {
	have := m.Layout()
	if len(have.States) == 0 {
		return nil
	}
	if diff := layersDiff(have, f.Layers); diff != "" {
		return fmt.Errorf("add %s to %s: %s: %w", f.Layers, name, diff, shard.ErrMismatch)
	}
	last := have.States[len(have.States)-1]
	if last.Role == format.RoleFinal && f.Final != producer.FinalUnsaid && f.Final.String() != last.Norm.String() {
		return fmt.Errorf("add to %s: --final says %s, it has %s: %w", name, f.Final, last, shard.ErrMismatch)
	}
	if f.Producer != "" && f.Producer != m.Producer {
		return fmt.Errorf("add to %s: --producer says %s, it is of %s: %w", name, f.Producer, m.Producer, shard.ErrMismatch)
	}
	return nil
}

// layersDiff says how layers differ from those of a dataset. The last of a list may be
// the final state before the norm, and a dump may have no other than its final.
func layersDiff(have format.Layout, want format.Layers) string {
	if want == nil || have.States[0].Role == format.RoleFinal {
		return ""
	}
	last := have.States[len(have.States)-1]
	if last.Role == format.RoleFinal && last.Norm != format.NormPost && validate.Diff(have, want[:len(want)-1]) == "" {
		return ""
	}
	return validate.Diff(have, want)
}
