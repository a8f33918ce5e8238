select t.customer
from {{ ref("customer_total") }} as t
join (select customer, sum(amount) as total from {{ ref("orders") }} group by 1) as o using (customer)
where t.total <> o.total
