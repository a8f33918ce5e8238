{{ config(materialized="table", indexes=[{"columns": ["total"]}]) }}
select
    customer::integer as customer,
    total::numeric as total,
    (case when total < 50 then 'small' else 'large' end)::text as class
from {{ ref("customer_sum") }}
