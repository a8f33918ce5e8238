create(db,"s")
create(tbl,"t",s,1)
create(col,"a",s.t)
relational_insert(s.t,1)
single_core_execute() -- error
single_core()
single_core() -- error
batch_queries()
n=sum(s.t.a)
single_core_execute() -- error
batch_execute()
single_core_execute()
print(n)
set(threads,2)
set(threads,0) -- error
set(threads,x) -- error
set(batch_heuristic,breadth)
set(batch_heuristic,wide) -- error
set(batch_heuristic,smart)
set(multiselect,no_block)
set(inverse,off)
set(access,index)
set(chunk_kib,64)
set(selects_per_task,4)
set(load,checked)
set(load,unchecked) -- error
set(colour,blue) -- error
now=time()
later=time(now)
time(n) -- error
d=add(now,later) -- error
sum(later) -- error
