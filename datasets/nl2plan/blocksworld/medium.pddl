(define (problem medium)
  (:domain blocksworld)
  (:objects
    blue red yellow green - block)
  (:init
    (handempty) (ontable red) (on blue red) (clear blue) (ontable yellow) (on green yellow) (clear green))
  (:goal (and
    (on green red)
    (on blue green)
    (on yellow blue))))
