(define (problem easy)
  (:domain blocksworld)
  (:objects
    blue red yellow green - block)
  (:init
    (handempty) (ontable yellow) (on red yellow) (on blue red) (clear blue) (ontable green) (clear green))
  (:goal (on red green)))
