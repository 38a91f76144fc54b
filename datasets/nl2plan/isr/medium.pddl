(define (problem medium)
  (:domain isr)
  (:objects
    va vb vc vd ve vf vg vh vi vj vk vl vm vn vo vp vq - vertex)
  (:init
    (edge va vb) (edge vb va) (edge vb vc) (edge vc vb) (edge vc vd) (edge vd vc) (edge vc vh) (edge vh vc)
    (edge vc vj) (edge vj vc) (edge vd ve) (edge ve vd) (edge vf vg) (edge vg vf) (edge vf vm) (edge vm vf)
    (edge vg vh) (edge vh vg) (edge vg vn) (edge vn vg) (edge vh vi) (edge vi vh) (edge vi vj) (edge vj vi)
    (edge vi vo) (edge vo vi) (edge vj vk) (edge vk vj) (edge vk vl) (edge vl vk) (edge vk vp) (edge vp vk)
    (edge vl vq) (edge vq vl) (edge vm vn) (edge vn vm) (edge vn vo) (edge vo vn) (edge vo vp) (edge vp vo)
    (edge vp vq) (edge vq vp) (token vc) (token ve) (token vg) (token vk) (token vm) (token vo) (token vq))
  (:goal (and
    (token vd)
    (token vf)
    (token vh)
    (token vj)
    (token vl)
    (token vn)
    (token vp))))
