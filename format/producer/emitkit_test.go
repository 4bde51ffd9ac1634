package producer_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/hsxtest"
)

// kitDump is an entry of the kit's dumps/INDEX.json.
type kitDump struct {
	ID, Dir, DType, Container, Convention string
	Aux                                   []string `json:"aux_layers"`
	IDs                                   []int    `json:"ids_as_configured"`
	Final                                 *struct{ Norm string }
}

// facts are what the kit says of a dump that the dump does not.
func (d *kitDump) facts(t testing.TB) producer.Facts {
	t.Helper()
	f := producer.Facts{Target: target()}
	ids, c := d.IDs, format.PostLayer
	if ids == nil {
		for _, name := range d.Aux {
			id, err := strconv.Atoi(strings.TrimPrefix(name, "P"))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
	} else if d.Convention == "boundary" {
		c = format.Boundary
	}
	if len(ids) > 0 {
		var err error
		if f.Layers, err = format.NewLayers(ids, c); err != nil {
			t.Fatal(err)
		}
	}
	if d.Container == "json" || d.ID == "npy_bf16_as_uint16" {
		f.DType = format.BFloat16
	}
	return f
}

// sinkFunc is a capture.Sink.
type sinkFunc func(s *format.Sample) error

func (f sinkFunc) Put(_ context.Context, s *format.Sample) error { return f(s) }

// TestEmitKit reads back, in every form that takes them, the samples that the real
// producers wrote.
func TestEmitKit(t *testing.T) {
	t.Parallel()
	for name, kit := range hsxtest.Kits(t, "../../cmd/hsx/testdata/kit") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var index struct{ Dumps []kitDump }
			hsxtest.ReadJSON(t, filepath.Join(kit, "dumps/INDEX.json"), &index)
			forms := map[string]int{} // by target, the dumps that it took a sample of
			for _, d := range index.Dumps {
				if d.Container == "torch-legacy" {
					continue
				}
				took := map[string]bool{}
				emitDump(t, filepath.Join(kit, "dumps", d.Dir), d.facts(t), func(to string) { took[to] = true })
				if want := !strings.HasPrefix(d.ID, "automodel"); took["safetensors"] != want || took["npy"] != want {
					t.Errorf("%s: taken by %v, want safetensors and npy among them: %t", d.ID, took, want)
				}
				for to := range took {
					forms[to]++
				}
			}
			for _, to := range producer.Targets() {
				if forms[to.Name] < 2 {
					t.Errorf("%s took samples of %d dumps, want several", to.Name, forms[to.Name])
				}
			}
		})
	}
}

// emitDump emits every sample of a dump in every form, and reads it back.
func emitDump(t *testing.T, dir string, facts producer.Facts, took func(to string)) {
	t.Helper()
	plan, err := capture.NewPlan(t.Context(), []string{dir}, capture.Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Run(t.Context(), sinkFunc(func(s *format.Sample) error {
		for _, to := range producer.Targets() {
			rec, err := producer.Emit(to.Name, s, producer.EmitOptions{})
			if _, refused := errors.AsType[*producer.FieldError](err); refused {
				continue // TestEmitRefuses has the reasons
			}
			if err != nil {
				t.Fatal(err)
			}
			w := want(t, to.Name, s, producer.EmitOptions{})
			same(t, w, readBack(t, to.Name, rec, w))
			took(to.Name)
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
}
