package ablation

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"
	"strconv"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// Sizes of the figure in pixels.
const (
	figureWidth = 900
	panelHeight = 250
	leftEdge    = 70
	rightEdge   = 20
	titleHeight = 34
	axisHeight  = 30
	legendLine  = 26
	textSize    = 14
	numTicks    = 4
)

var (
	white = color.RGBA{0xff, 0xff, 0xff, 0xff}
	ink   = color.RGBA{0x22, 0x22, 0x22, 0xff}
	grid  = color.RGBA{0xe2, 0xe2, 0xe2, 0xff}
)

// palette are colours that people with any eyes tell apart (Okabe and Ito).
func palette(arm int) color.RGBA {
	all := []color.RGBA{
		{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
		{0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x55, 0x55, 0x55, 0xff},
	}
	return all[arm%len(all)]
}

// PNG draws a panel for each measure: the mean of each arm by step, with its band.
func (r Result) PNG() ([]byte, error) {
	parsed, err := opentype.Parse(goregular.TTF)
	if err != nil {
		return nil, fmt.Errorf("font: %w", err)
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: textSize, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		return nil, fmt.Errorf("font: %w", err)
	}
	measures := Measures()
	height := legendLine*(1+len(r.Arms)) + len(measures)*(titleHeight+panelHeight+axisHeight)
	f := figure{image: image.NewRGBA(image.Rect(0, 0, figureWidth, height)), face: face}
	draw.Draw(f.image, f.image.Bounds(), image.NewUniform(white), image.Point{}, draw.Src)
	y := f.legend(r)
	for _, m := range measures {
		f.panel(r, m, y+titleHeight)
		y += titleHeight + panelHeight + axisHeight
	}
	var buf bytes.Buffer
	err = png.Encode(&buf, f.image)
	return buf.Bytes(), err
}

type figure struct {
	image *image.RGBA
	face  font.Face
}

func (f figure) write(x, y int, text string) {
	d := font.Drawer{Dst: f.image, Src: image.NewUniform(ink), Face: f.face, Dot: fixed.P(x, y)}
	d.DrawString(text)
}

// legend names the arms and returns where it ends.
func (f figure) legend(r Result) int {
	f.write(leftEdge, legendLine-6, "ablation "+r.ID+": means over seeds, with 95 % intervals")
	for i, a := range r.Arms {
		y := legendLine * (i + 1)
		draw.Draw(f.image, image.Rect(leftEdge, y+9, leftEdge+28, y+13), image.NewUniform(palette(i)), image.Point{}, draw.Src)
		f.write(leftEdge+38, y+16, fmt.Sprintf("%s (%d of %d runs)", a.Name, a.Runs, a.Of))
	}
	return legendLine * (1 + len(r.Arms))
}

// panel draws one measure below top.
func (f figure) panel(r Result, m Measure, top int) {
	s := scaleOf(r, m, top)
	f.write(leftEdge, top-10, m.Title+" ("+m.Unit+") by step")
	for i := range numTicks + 1 {
		v := s.low + (s.high-s.low)*float64(i)/numTicks
		y := s.y(v)
		f.line(leftEdge, y, figureWidth-rightEdge, y, grid, 1)
		f.write(8, int(y)+5, strconv.FormatFloat(v, 'g', 3, 64))
	}
	for _, step := range s.steps() {
		f.write(int(s.x(step))-4, top+panelHeight+20, strconv.Itoa(step+1))
	}
	for i, a := range r.Arms {
		f.band(a.Series[m.Name], s, palette(i))
	}
	for i, a := range r.Arms { // lines above all bands
		f.mean(a.Series[m.Name], s, palette(i))
	}
}

// scale maps steps and values to pixels.
type scale struct {
	low, high float64
	num, top  int
}

func scaleOf(r Result, m Measure, top int) scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1), top: top}
	for _, a := range r.Arms {
		s.num = max(s.num, len(a.Series[m.Name]))
		for _, b := range a.Series[m.Name] {
			for _, v := range []Value{b.Mean, b.Low, b.High} {
				if x := float64(v); !math.IsNaN(x) {
					s.low, s.high = min(s.low, x), max(s.high, x)
				}
			}
		}
	}
	if !(s.low < s.high) { // nothing, or one value alone
		if math.IsInf(s.low, 0) {
			s.low = 0
		}
		s.high = s.low + 1
	}
	return s
}

func (s scale) x(step int) float64 {
	return leftEdge + float64(figureWidth-leftEdge-rightEdge)*float64(step)/float64(max(1, s.num-1))
}

func (s scale) y(v float64) float64 {
	return float64(s.top) + panelHeight*(1-(v-s.low)/(s.high-s.low))
}

// steps are those that the axis names, from 0.
func (s scale) steps() (out []int) {
	for i := range 5 {
		if step := i * (s.num - 1) / 4; s.num > 0 && (i == 0 || step != out[len(out)-1]) {
			out = append(out, step)
		}
	}
	return out
}

// band fills what lies between the ends of the intervals.
func (f figure) band(bs []Band, s scale, ink color.RGBA) {
	for i := 0; i+1 < len(bs); i++ {
		a, b := bs[i], bs[i+1]
		if math.IsNaN(float64(a.Low)) || math.IsNaN(float64(b.Low)) {
			continue
		}
		from, to := s.x(i), s.x(i+1)
		for x := int(math.Ceil(from)); float64(x) < to; x++ {
			at := (float64(x) - from) / (to - from)
			low := float64(a.Low)*(1-at) + float64(b.Low)*at
			high := float64(a.High)*(1-at) + float64(b.High)*at
			for y := int(s.y(high)); y <= int(s.y(low)); y++ {
				f.blend(x, y, ink, 0.18)
			}
		}
	}
}

// mean draws the line through the means.
func (f figure) mean(bs []Band, s scale, ink color.RGBA) {
	for i, b := range bs {
		if math.IsNaN(float64(b.Mean)) {
			continue
		}
		next := bs[min(i+1, len(bs)-1)]
		if i+1 == len(bs) || math.IsNaN(float64(next.Mean)) {
			f.line(s.x(i)-1, s.y(float64(b.Mean)), s.x(i)+1, s.y(float64(b.Mean)), ink, 3)
			continue
		}
		f.line(s.x(i), s.y(float64(b.Mean)), s.x(i+1), s.y(float64(next.Mean)), ink, 2)
	}
}

// line draws a line of a width in pixels, with smooth edges.
func (f figure) line(x0, y0, x1, y1 float64, ink color.RGBA, width float64) {
	length := math.Hypot(x1-x0, y1-y0)
	if length == 0 {
		return
	}
	reach := width/2 + 1
	for y := int(min(y0, y1) - reach); float64(y) <= max(y0, y1)+reach; y++ {
		for x := int(min(x0, x1) - reach); float64(x) <= max(x0, x1)+reach; x++ {
			along := ((float64(x)-x0)*(x1-x0) + (float64(y)-y0)*(y1-y0)) / (length * length)
			along = min(1, max(0, along))
			away := math.Hypot(float64(x)-x0-along*(x1-x0), float64(y)-y0-along*(y1-y0))
			if cover := min(1, width/2+0.5-away); cover > 0 {
				f.blend(x, y, ink, cover)
			}
		}
	}
}

// blend lays a share of ink over a pixel.
func (f figure) blend(x, y int, ink color.RGBA, share float64) {
	if !(image.Point{X: x, Y: y}).In(f.image.Bounds()) {
		return
	}
	under := f.image.RGBAAt(x, y)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a)*(1-share) + float64(b)*share)) }
	f.image.SetRGBA(x, y, color.RGBA{R: mix(under.R, ink.R), G: mix(under.G, ink.G), B: mix(under.B, ink.B), A: 0xff})
}
